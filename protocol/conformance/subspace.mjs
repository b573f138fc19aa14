// Random bases and the cores of directions (SPEC 4.1 to 4.4).

import { basisKey } from "./hashing.mjs";
import { signs, words } from "./philox.mjs";

const STREAM_U = 0;
const STREAM_V = 1;
const STREAM_CANONICAL = 1;
const STREAM_RADEMACHER = 2;

/** Bases of tensor number p in an epoch: {u: rows x rank signs, v: cols x rank signs, empty for a vector}. */
export function randomBasis(runId, epoch, tensorNumber, { rows, cols, rank }) {
  const key = basisKey(runId, epoch, tensorNumber);
  return { u: signs(key, rows * rank, STREAM_U), v: signs(key, cols * rank, STREAM_V) };
}

/** [row i, column j, sign] of each tensor for direction number `direction` of the round with this seed. */
export function canonicalCores(seed, rank, tensorCount, direction) {
  const source = words(seed, Math.ceil(tensorCount / 2), STREAM_CANONICAL, direction);
  const bits = Math.log2(rank);
  return Array.from({ length: tensorCount }, (_, index) => {
    const lane = (source[index >>> 1] >>> (16 * (index & 1))) & 0xffff;
    return [lane & (rank - 1), (lane >>> bits) & (rank - 1), lane >>> 15 ? -1 : 1];
  });
}

/** [a, b] of each tensor, rank signs each; b also for a vector, which leaves it unused. */
export function rademacherCores(seed, rank, tensorCount, direction) {
  const all = signs(seed, 2 * rank * tensorCount, STREAM_RADEMACHER, direction);
  return Array.from({ length: tensorCount }, (_, index) => {
    const start = 2 * rank * index;
    return [all.subarray(start, start + rank), all.subarray(start + rank, start + 2 * rank)];
  });
}

/** The exponent s of 4.4. */
export function scaleExponent({ core, rank }, kind) {
  if (core === "canonical") return 0;
  const bits = Math.log2(rank);
  return (kind === "matrix" ? -bits : -Math.ceil(bits / 2)) + 0; // not -0
}
