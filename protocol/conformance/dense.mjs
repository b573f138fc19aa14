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

/** Bits of a number: the fewest whose two's complement holds +-clip. */
function numberBits({ clip }) {
  return 33 - Math.clz32(clip);
}

/** Bytes of the rows and the numbers of a message. */
export function denseBytes(manifest) {
  return 2 + Math.ceil(((flatLength(manifest) - 1) * numberBits(manifest.method)) / 8);
}

/** [rows, numbers ...] of a dense message, which begin at `offset`. */
export function readDense(manifest, payload, offset) {
  const bits = numberBits(manifest.method);
  const number = (_, index) => {
    const place = index * bits;
    return (payload[offset + 2 + (place >>> 3)] << (24 + (place & 7))) >> (32 - bits); // shifts carry the sign down
  };
  return [payload.readUInt16BE(offset), ...Array.from({ length: flatLength(manifest) - 1 }, number)];
}

/** The payload is zeros so far. */
export function writeDense(manifest, [rows, ...numbers], payload, offset) {
  const bits = numberBits(manifest.method);
  payload.writeUInt16BE(rows, offset);
  numbers.forEach((q, index) => {
    const place = index * bits;
    payload[offset + 2 + (place >>> 3)] |= ((q & ((1 << bits) - 1)) << (8 - bits)) >>> (place & 7);
  });
}

/** Rule 6.2.3. */
export function checkDense(manifest, { scalars: [rows, ...numbers], payload }) {
  const { method } = manifest;
  rejectUnless(rows >= 1 && rows <= method.directions, "SCALAR_RANGE", `${rows} rows`);
  rejectUnless(numbers.every((q) => q >= -method.clip), "SCALAR_RANGE", `below -${method.clip}`);
  const spare = 8 * (denseBytes(manifest) - 2) - numbers.length * numberBits(method);
  rejectUnless((payload.at(-1) & ((1 << spare) - 1)) === 0, "SCALAR_RANGE", "bits behind the last number");
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
