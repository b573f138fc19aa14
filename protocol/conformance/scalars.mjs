// From a measured loss difference to a signed integer, and what weighs it (SPEC 5).

import { words } from "./philox.mjs";

const STREAM_EXAMPLES = 3;
const NORMALISED_CLIP = 127;

/** Nearest integer, halves away from zero. The difference to the truncated value is exact, x + 0.5 would not be. */
export function roundHalfAway(x) {
  const whole = Math.trunc(x);
  const rounded = Math.abs(x - whole) >= 0.5 ? whole + Math.sign(x) : whole;
  return rounded + 0; // no negative zero
}

function clamp(value, bound) {
  return Math.min(bound, Math.max(-bound, value));
}

/** The D scalars of one step's projected gradients, of the first directions or of all; null: the node skips the round. */
export function quantise(method, gradients) {
  if (!gradients.every(Number.isFinite)) return null;
  const measured = method.scalar === "raw" ? quantiseRaw(method, gradients) : quantiseNormalised(gradients);
  return measured && [...measured, ...Array(method.directions - measured.length).fill(0)];
}

/**
 * The numbers of a dense message: `rows`, then the mean gradient in whole units, shortened where its energy would be too
 * much; null: the node skips the step.
 */
export function quantiseDense({ quantum_exp: exponent, energy_max: energyMax, clip }, rows, mean) {
  const scaled = mean.map((g) => g / 2 ** exponent);
  const length = Math.hypot(...scaled);
  if (!Number.isFinite(length)) return null;
  const longest = Math.max(0, Math.sqrt(energyMax) - Math.sqrt(mean.length) / 2);
  const factor = length > longest ? longest / length : 1;
  return [rows, ...scaled.map((x) => clamp(roundHalfAway(factor * x), clip))];
}

/** How many of D directions the author of a round's scalars measured, as far as they tell. */
export function directionsMeasured({ core, directions, shares }, scalars) {
  if (core === "dense") return scalars[0];
  const last = Math.max(0, ...scalars.map((q, place) => (q === 0 ? 0 : (place % directions) + 1)));
  return Math.ceil(last / shares) * shares || directions;
}

function quantiseRaw({ quantum_exp: exponent, clip }, gradients) {
  return gradients.map((g) => clamp(roundHalfAway(g / 2 ** exponent), clip));
}

function quantiseNormalised(gradients) {
  const largest = Math.max(...gradients.map(Math.abs));
  if (largest === 0) return null;
  const relative = gradients.map((g) => g / largest); // so that no square overflows, nor all vanish
  const rms = Math.sqrt(relative.reduce((sum, x) => sum + x * x, 0) / gradients.length);
  return relative.map((x) => clamp(roundHalfAway((32 * x) / rms), NORMALISED_CLIP));
}

/** 31.5^2 n <= E <= 32.5^2 D for one local step's scalars, n >= 1 not zero; the lower bound only if none is clamped. */
export function keepsEnergyRule(scalars) {
  const energy = scalars.reduce((sum, q) => sum + q * q, 0);
  const isClamped = scalars.some((q) => Math.abs(q) === NORMALISED_CLIP);
  const count = scalars.filter((q) => q !== 0).length;
  if (count === 0) return false;
  return 4 * energy <= 4225 * scalars.length && (isClamped || 4 * energy >= 3969 * count);
}

/** Learning-rate weight of a step. All products stay below 2^53. */
export function weightOf({ schedule, steps }, step) {
  const { kind, weight_start: start, weight_end: end } = schedule;
  const n = steps - 1;
  if (kind === "constant" || n === 0) return start;
  return Math.floor((2 * (start * (n - step) + end * step) + n) / (2 * n));
}

/** Rows of the node's data that the local steps of a round use, local step by local step. */
export function exampleRows(seed, count, dataRows) {
  return Array.from(words(seed, count, STREAM_EXAMPLES), (word) => Number((BigInt(word) * BigInt(dataRows)) >> 32n));
}
