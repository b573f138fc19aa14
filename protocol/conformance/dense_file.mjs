// The file of a basis for dense cores (SPEC 4.7): from bytes to integers. Rejects BASIS.

import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/dense/1\n\0", "latin1");
const FIRST_BYTES = MAGIC.length + 12;
const TENSOR_BYTES = 10;
const EXPONENT_MAX = 60;

export function denseFileBytes({ method, tensors }) {
  const entries = ({ rows, cols }) => method.core_rows * rows + method.rank * cols;
  return tensors.reduce((sum, tensor) => sum + TENSOR_BYTES + entries(tensor), FIRST_BYTES);
}

/** What the file of a run begins with: its head, then rows and cols of each tensor. */
function isOfRun({ method, tensors }, data) {
  const numbers = [method.rank, tensors.length, method.core_rows];
  const isHead = data.subarray(0, MAGIC.length).equals(MAGIC);
  const isRanked = () => numbers.every((number, index) => data.readUInt32BE(MAGIC.length + 4 * index) === number);
  const isShaped = () => tensors.every(({ rows, cols }, p) => {
    const at = FIRST_BYTES + TENSOR_BYTES * p;
    return data.readUInt32BE(at) === rows && data.readUInt32BE(at + 4) === cols;
  });
  return data.length === denseFileBytes({ method, tensors }) && isHead && isRanked() && isShaped();
}

/** {bases, start: null}; bases: {u, v, u_exp, v_exp} of every tensor, flat and row by row. */
export function readDenseFile({ method, tensors }, data) {
  rejectUnless(isOfRun({ method, tensors }, data), "BASIS", "other ranks or shapes");
  const at = (p) => FIRST_BYTES + TENSOR_BYTES * p + 8;
  const exponents = tensors.map((_, p) => [data.readInt8(at(p)), data.readInt8(at(p) + 1)]);
  rejectUnless(exponents.flat().every((exp) => Math.abs(exp) <= EXPONENT_MAX), "BASIS", "an exponent out of bounds");
  const entries = new Int8Array(data.subarray(FIRST_BYTES + TENSOR_BYTES * tensors.length));
  rejectUnless(entries.every((entry) => Math.abs(entry) <= method.basis_max), "BASIS", "an entry exceeds basis_max");
  let offset = 0;
  const take = (count) => entries.subarray(offset, (offset += count));
  const bases = tensors.map(({ rows, cols }, p) => {
    const [u, v] = [take(rows * method.core_rows), take(cols * method.rank)];
    return { u, v, u_exp: exponents[p][0], v_exp: exponents[p][1] };
  });
  return { bases, start: null };
}
