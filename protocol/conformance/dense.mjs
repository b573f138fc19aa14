// Dense cores: their numbers in a message (SPEC 5.6), in the state and in the view (SPEC 4.7).

import { rejectUnless } from "./verdicts.mjs";

export function isDense({ core }) {
  return core === "dense";
}

/** How many coordinates each tensor's core has. */
export function coreSizes({ method, tensors }) {
  const rows = isDense(method) ? method.core_rows : method.rank;
  return tensors.map(({ kind }) => method.rank * (kind === "vector" ? 1 : rows));
}

/** The length of the flat form; that of a dense run begins with the rows of the step's messages. */
export function flatLength(manifest) {
  return coreSizes(manifest).reduce((sum, size) => sum + size, isDense(manifest.method) ? 1 : 0);
}

/** [rows, numbers ...] of a dense message, which begin at `offset`. */
export function readDense(payload, offset) {
  const numbers = new Int8Array(payload.subarray(offset + 2)); // copies: bytes as two's complement
  return [payload.readUInt16BE(offset), ...numbers];
}

export function writeDense([rows, ...numbers], payload, offset) {
  payload.writeUInt16BE(rows, offset);
  numbers.forEach((q, index) => payload.writeInt8(q, offset + 2 + index));
}

/** Rule 6.2.3. */
export function checkDense(method, [rows, ...numbers]) {
  rejectUnless(rows >= 1 && rows <= method.directions, "SCALAR_RANGE", `${rows} rows`);
  rejectUnless(!numbers.includes(-128), "SCALAR_RANGE", "-128");
  const energy = numbers.reduce((sum, q) => sum + q * q, 0);
  rejectUnless(energy <= method.energy_max, "SCALAR_ENERGY", `energy ${energy}`);
}

/** What a dense message adds to the flat form of its step. */
export function addDense(flat, [rows, ...numbers], factor) {
  flat[0] += factor * rows;
  numbers.forEach((q, index) => (flat[1 + index] += factor * rows * q));
}

/** w S / (R + noise_rows), halves away from zero, from the flat form in BigInt; 0 in the place of R. */
export function denseCore({ method }, weight, [rows, ...sums]) {
  const divisor = rows + BigInt(method.noise_rows);
  const quotient = (sum) => {
    const scaled = BigInt(weight) * sum;
    const half = (2n * (scaled < 0n ? -scaled : scaled) + divisor) / (2n * divisor);
    return scaled < 0n ? -half : half;
  };
  return [0n, ...sums.map(quotient)];
}
