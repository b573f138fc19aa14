// The model's state: one sum of integers per coefficient, a function of the slots that count (SPEC 4.5, 7.4).
// Float64Array adds exactly here: rule 1.4.11 keeps every sum below 2^53, on the way there, too.

import { addDense, coreSizes, flatLength, isDense } from "./dense.mjs";
import { localSteps, parseRecord } from "./envelope.mjs";
import { hashFields, hashList, u32 } from "./hashing.mjs";
import { weightOf } from "./scalars.mjs";
import { canonicalCores, rademacherCores } from "./subspace.mjs";

export class Coefficients {
  #run;
  #offsets; // of each tensor in the flat form
  #flatLength;
  #epochs = new Map(); // epoch -> Float64Array in flat form

  constructor(run) {
    this.#run = run;
    const sizes = coreSizes(run.manifest);
    this.#offsets = sizes.map((_, p) => sizes.slice(0, p).reduce((sum, size) => sum + size, 0));
    this.#flatLength = flatLength(run.manifest);
  }

  /** Adds what an envelope contributes; factor -1 takes it out again. */
  add({ step, seed, scalars }, factor = 1) {
    const { manifest } = this.#run;
    const { method } = manifest;
    const flat = this.#flatOf(Math.floor(step / method.epoch_steps));
    if (isDense(method)) {
      addDense(flat, scalars, factor);
      return;
    }
    localSteps(method, scalars).forEach((ofStep, k) => {
      const weight = factor * weightOf(manifest, step + k);
      ofStep.forEach((q, d) => this.#addDirection(flat, seed, k * method.directions + d, q * weight));
    });
  }

  /** The same with the payload alone. */
  addPayload(payload, factor = 1) {
    const noSignature = Buffer.concat([payload, Buffer.alloc(64)]);
    this.add(parseRecord(this.#run.manifest, noSignature), factor);
  }

  /** Takes out a payload that counted. */
  removePayload(payload) {
    this.addPayload(payload, -1);
  }

  #flatOf(epoch) {
    if (!this.#epochs.has(epoch)) this.#epochs.set(epoch, new Float64Array(this.#flatLength));
    return this.#epochs.get(epoch);
  }

  #addDirection(flat, seed, direction, amount) {
    if (amount === 0) return;
    const { manifest } = this.#run;
    const { core, rank } = manifest.method;
    const coresOf = core === "canonical" ? canonicalCores : rademacherCores;
    const addCore = core === "canonical" ? addCanonical : addRademacher;
    coresOf(seed, rank, manifest.tensors.length, direction).forEach((cores, p) => {
      const isMatrix = manifest.tensors[p].kind === "matrix";
      addCore(flat, { offset: this.#offsets[p], rank, isMatrix }, cores, amount);
    });
  }

  /** Coefficients of an epoch in flat form (Float64Array of integers); zeros if nothing was added. */
  flat(epoch) {
    return this.#epochs.get(epoch) ?? new Float64Array(this.#flatLength);
  }

  /** Replaces an epoch's coefficients. */
  setFlat(epoch, values) {
    this.#flatOf(epoch).set(values);
  }

  /** Epochs with any coefficient that is not zero, ascending. */
  epochs() {
    const held = [...this.#epochs].filter(([, flat]) => flat.some((value) => value !== 0));
    return held.map(([epoch]) => epoch).sort((a, b) => a - b);
  }

  digest() {
    const fields = this.epochs().flatMap((epoch) => [u32(epoch), epochDigest(this.flat(epoch))]);
    return hashList("sfnode/state/1", [this.#run.runId, ...fields]);
  }
}

function addCanonical(flat, { offset, rank, isMatrix }, [row, column, sign], amount) {
  flat[offset + (isMatrix ? row * rank + column : row)] += sign * amount;
}

function addRademacher(flat, { offset, rank, isMatrix }, [a, b], amount) {
  const width = isMatrix ? rank : 1;
  for (let row = 0; row < rank; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const sign = isMatrix ? a[row] * b[column] : a[row];
      flat[offset + row * width + column] += sign * amount;
    }
  }
}

/** Digest of one epoch: the flat form as little-endian int64. */
export function epochDigest(flat) {
  const bytes = Buffer.alloc(8 * flat.length);
  flat.forEach((value, index) => bytes.writeBigInt64LE(BigInt(value), 8 * index));
  return hashFields("sfnode/epoch/1", bytes);
}
