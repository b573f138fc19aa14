// One author's signed scalars of one round: layout and rules (SPEC 6), pure functions of (manifest, bytes).
// `run` is {manifest, runId} as manifest.mjs returns it.

import { checkDense, denseBytes, isDense, readDense, writeDense } from "./dense.mjs";
import { isValidAuthorKey, publicKeyOf, sign, verify } from "./ed25519.mjs";
import { seedOf } from "./hashing.mjs";
import { keepsEnergyRule } from "./scalars.mjs";
import { hasWork } from "./statements.mjs";
import { rejectUnless } from "./verdicts.mjs";

const HEADER_BYTES = 44;
const SIGNATURE_BYTES = 64;
const SIGNING_TAG = Buffer.from("sfnode/envelope1", "ascii");

/** Bytes of the scalars of a record: of 16 bits each, or 16 bits of rows and the packed numbers of a dense core. */
function scalarBytes(manifest) {
  const { directions, local_steps: steps } = manifest.method;
  return isDense(manifest.method) ? denseBytes(manifest) : 2 * directions * steps;
}

export function recordBytes(manifest) {
  return HEADER_BYTES + scalarBytes(manifest) + SIGNATURE_BYTES;
}

/** Records that travel end to end. Rejects SIZE. */
export function splitRecords(manifest, data) {
  const size = recordBytes(manifest);
  rejectUnless(data.length % size === 0, "SIZE", `${data.length} bytes are no multiple of ${size}`);
  return Array.from({ length: data.length / size }, (_, index) => data.subarray(index * size, (index + 1) * size));
}

/** Rule 1, then the fields. Views, not copies. */
export function parseRecord(manifest, record) {
  rejectUnless(record.length === recordBytes(manifest), "SIZE", `${record.length} bytes`);
  const payload = record.subarray(0, record.length - SIGNATURE_BYTES);
  return {
    author: payload.subarray(0, 32),
    step: payload.readUInt32BE(32),
    seed: payload.readBigUInt64BE(36),
    scalars: isDense(manifest.method) ? readDense(manifest, payload, HEADER_BYTES) : readScalars(payload),
    signature: record.subarray(payload.length),
    payload,
  };
}

function readScalars(payload) {
  const count = (payload.length - HEADER_BYTES) / 2;
  return Array.from({ length: count }, (_, index) => payload.readInt16BE(HEADER_BYTES + 2 * index));
}

/** Rules 1 to 3: what costs next to nothing. Returns the envelope. */
export function checkCheapRules(run, record) {
  const { manifest } = run;
  const envelope = parseRecord(manifest, record);
  const { method, steps } = manifest;
  rejectUnless(envelope.step < steps, "STEP_RANGE", `step ${envelope.step}`);
  rejectUnless(envelope.step % method.local_steps === 0, "STEP_ALIGNMENT", `step ${envelope.step}`);
  if (isDense(method)) {
    checkDense(manifest, envelope);
    return envelope;
  }
  rejectUnless(envelope.scalars.every((q) => Math.abs(q) <= method.clip), "SCALAR_RANGE");
  if (method.scalar === "normalised") {
    rejectUnless(localSteps(method, envelope.scalars).every(keepsEnergyRule), "SCALAR_ENERGY");
  }
  return envelope;
}

/** The scalars of each local step in turn. */
export function localSteps(method, scalars) {
  const count = method.directions;
  return Array.from({ length: method.local_steps }, (_, k) => scalars.slice(k * count, (k + 1) * count));
}

/** Rules 4 to 6: hash and signature. */
export function checkCostlyRules(run, envelope) {
  rejectUnless(envelope.seed === seedOf(run.runId, envelope.author, envelope.step), "SEED");
  rejectUnless(isValidAuthorKey(envelope.author), "AUTHOR_KEY");
  rejectUnless(hasWork(run, envelope.author), "AUTHOR_WORK");
  const signed = signedBytes(run.runId, envelope.payload);
  rejectUnless(verify(envelope.author, signed, envelope.signature), "SIGNATURE");
}

/** All rules of 6.2 without a ledger. */
export function checkRecord(run, record) {
  const envelope = checkCheapRules(run, record);
  checkCostlyRules(run, envelope);
  return envelope;
}

function signedBytes(runId, payload) {
  return Buffer.concat([SIGNING_TAG, runId, payload]);
}

/** A record by the holder of `secretSeed`, for tests and tools. */
export function makeRecord({ manifest, runId }, secretSeed, step, scalars) {
  const author = publicKeyOf(secretSeed);
  const payload = Buffer.alloc(HEADER_BYTES + scalarBytes(manifest));
  author.copy(payload);
  payload.writeUInt32BE(step, 32);
  payload.writeBigUInt64BE(seedOf(runId, author, step), 36);
  if (isDense(manifest.method)) writeDense(manifest, scalars, payload, HEADER_BYTES);
  else scalars.forEach((q, index) => payload.writeInt16BE(q, HEADER_BYTES + 2 * index));
  return Buffer.concat([payload, sign(secretSeed, signedBytes(runId, payload))]);
}
