// The file of a published basis (SPEC 4.6): from bytes to integers. Rejects BASIS.

import { createHash } from "node:crypto";
import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/basis/1\n\0", "latin1");

/** Its length for the tensors of a manifest. */
export function basisFileBytes({ method, tensors }) {
  return tensors.reduce((sum, { rows, cols }) => sum + 8 + method.rank * (rows + cols), MAGIC.length + 8);
}

function header({ method, tensors }) {
  const numbers = [method.rank, tensors.length, ...tensors.flatMap(({ rows, cols }) => [rows, cols])];
  const bytes = Buffer.alloc(4 * numbers.length);
  numbers.forEach((number, index) => bytes.writeUInt32BE(number, 4 * index));
  return Buffer.concat([MAGIC, bytes]);
}

/** {u, v} of every tensor, flat and row by row; v is null for a vector. Of `manifest` it needs method and tensors. */
export function readBasisFile(manifest, data) {
  const { rank, basis_sha256: digest, basis_max: largest } = manifest.method;
  rejectUnless(createHash("sha256").update(data).digest("hex") === digest, "BASIS", "another hash");
  const start = header(manifest);
  const isOfRun = data.subarray(0, start.length).equals(start) && data.length === basisFileBytes(manifest);
  rejectUnless(isOfRun, "BASIS", "another rank or other shapes");
  const entries = new Int8Array(data.subarray(start.length)); // copies: each byte as two's complement
  rejectUnless(
    entries.every((entry) => Math.abs(entry) <= largest),
    "BASIS",
    "an entry exceeds basis_max",
  );
  let offset = 0;
  const take = (rows) => entries.subarray(offset, (offset += rows * rank));
  return manifest.tensors.map(({ rows, cols }) => ({ u: take(rows), v: cols === 0 ? null : take(cols) }));
}
