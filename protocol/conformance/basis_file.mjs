// The file of a dense core's basis (SPEC 4.6): from bytes to integers. Rejects BASIS.

import { createHash } from "node:crypto";
import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/basis/4\n\0", "latin1");
const EXPONENT_MAX = 60;
const ENTRY_MAX = 127;

/** How many numbers the tensor's layer gives. */
export function outputsOf({ kind, rows, cols }) {
  return kind === "transposed" ? cols : rows;
}

/** How many numbers the tensor's layer takes. */
export function inputsOf({ kind, rows, cols }) {
  return kind === "transposed" ? rows : cols;
}

/** Its length for the tensors of a manifest. */
export function basisFileBytes({ method, tensors }) {
  const written = method.core_rows * outputsOf(tensors[0]);
  const entries = tensors.reduce((sum, tensor) => sum + written + method.rank * inputsOf(tensor), written);
  return MAGIC.length + 1 + 2 * tensors.length + entries;
}

/** The target and {u, v, u_exp, v_exp} of every tensor, flat and row by row. Of `manifest` it needs method and tensors. */
export function readBasisFile({ method, tensors }, data) {
  const digest = createHash("sha256").update(data).digest("hex");
  rejectUnless(digest === method.basis_sha256, "BASIS", "another hash");
  rejectUnless(data.subarray(0, MAGIC.length).equals(MAGIC), "BASIS", "another beginning");
  rejectUnless(data.length === basisFileBytes({ method, tensors }), "BASIS", "another length");
  const numbers = new Int8Array(data.subarray(MAGIC.length)); // copies: bytes as two's complement
  let offset = 0;
  const take = (count) => numbers.subarray(offset, (offset += count));
  const [target_exp, ...exponents] = take(1 + 2 * tensors.length);
  rejectUnless([target_exp, ...exponents].every((exp) => Math.abs(exp) <= EXPONENT_MAX), "BASIS", "an exponent out of bounds");
  const written = method.core_rows * outputsOf(tensors[0]);
  const target = take(written);
  const bases = tensors.map((tensor, p) => {
    const [u_exp, v_exp] = exponents.slice(2 * p);
    return { u: take(written), v: take(method.rank * inputsOf(tensor)), u_exp, v_exp };
  });
  const sides = [target, ...bases.flatMap(({ u, v }) => [u, v])];
  rejectUnless(sides.every((side) => side.every((entry) => Math.abs(entry) <= ENTRY_MAX)), "BASIS", "an entry of -128");
  return { target, target_exp, bases };
}
