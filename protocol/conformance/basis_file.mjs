// The file of a published basis (SPEC 4.6): from bytes to integers. Rejects BASIS.

import { createHash } from "node:crypto";
import { isDense } from "./dense.mjs";
import { denseFileBytes, readDenseFile } from "./dense_file.mjs";
import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/basis/2\n\0", "latin1");
const EXPONENT_AT = MAGIC.length + 12; // after rank, number of tensors and the start's rank
const FIRST_BYTES = EXPONENT_AT + 4;
const START_EXP_MIN = -60;

/** Its length for the tensors of a manifest. */
export function basisFileBytes({ method, tensors }) {
  if (isDense(method)) return denseFileBytes({ method, tensors });
  const columns = (cols) => method.rank + (cols === 0 ? 0 : method.start_rank);
  return tensors.reduce((sum, { rows, cols }) => sum + 8 + columns(cols) * (rows + cols), FIRST_BYTES);
}

/** The manifest as the file of this hash has to be read, which may be a renewal. */
export function namedBasis({ method, tensors }, sha256) {
  return { method: { ...method, basis_sha256: sha256 }, tensors };
}

function isOfRun({ method, tensors }, data) {
  const numbers = [method.rank, tensors.length, method.start_rank];
  const bytes = Buffer.alloc(4 * numbers.length);
  numbers.forEach((number, index) => bytes.writeUInt32BE(number, 4 * index));
  const shapes = Buffer.alloc(8 * tensors.length);
  tensors.flatMap(({ rows, cols }) => [rows, cols]).forEach((size, index) => shapes.writeUInt32BE(size, 4 * index));
  const isHead = data.subarray(0, EXPONENT_AT).equals(Buffer.concat([MAGIC, bytes]));
  const isShaped = data.subarray(FIRST_BYTES, FIRST_BYTES + shapes.length).equals(shapes);
  return isHead && isShaped && data.length === basisFileBytes({ method, tensors });
}

/**
 * bases: {u, v} of every tensor, flat and row by row; v is null for a vector.
 * start: null, or {exp, products}: {u, v} of every matrix, null for a vector. Of `manifest` it needs method and tensors.
 */
export function readBasisFile({ method, tensors }, data) {
  const { rank, start_rank: startRank, basis_sha256: digest, basis_max: largest } = method;
  rejectUnless(createHash("sha256").update(data).digest("hex") === digest, "BASIS", "another hash");
  if (isDense(method)) return readDenseFile({ method, tensors }, data);
  rejectUnless(isOfRun({ method, tensors }, data), "BASIS", "other ranks or shapes");
  const exp = data.readInt32BE(EXPONENT_AT);
  rejectUnless(exp <= 0 && exp >= (startRank === 0 ? 0 : START_EXP_MIN), "BASIS", "an exponent out of bounds");
  const entries = new Int8Array(data.subarray(FIRST_BYTES + 8 * tensors.length)); // copies: bytes as two's complement
  rejectUnless(
    entries.every((entry) => Math.abs(entry) <= largest),
    "BASIS",
    "an entry exceeds basis_max",
  );
  let offset = 0;
  const take = (count) => entries.subarray(offset, (offset += count));
  const both = (columns) => (tensor) => ({
    u: take(tensor.rows * columns),
    v: tensor.cols === 0 ? null : take(tensor.cols * columns),
  });
  const bases = tensors.map(both(rank));
  if (startRank === 0) return { bases, start: null };
  return { bases, start: { exp, products: tensors.map((each) => (each.cols === 0 ? null : both(startRank)(each))) } };
}
