// Snapshots and attestations (SPEC 9.5): the file that a ledger implies, and the rules for bytes.

import { SPAN_STEPS } from "./digests.mjs";
import { parseRecord } from "./envelope.mjs";
import { isValidAuthorKey, publicKeyOf, sign, verify } from "./ed25519.mjs";
import { hashList, u32 } from "./hashing.mjs";
import { replay } from "./replay.mjs";
import { hasWork } from "./statements.mjs";
import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/snapshot1", "ascii");
const SIGNED_TAG = Buffer.from("sfnode/attested1", "ascii");
const HEAD_BYTES = 92;
const FILE_BYTES_MAX = 64 * 1024 * 1024;
const WIDTHS = [1, 2, 4, 8];

const isStep = ({ steps }, step) => step % SPAN_STEPS === 0 && step > 0 && step < steps;

/** The file of all that begins below `step` among these records. */
export function takeSnapshot(run, records, step) {
  const before = records.filter((record) => parseRecord(run.manifest, record).step < step);
  const { ledger, coefficients } = replay(run, before);
  const slots = ledger.updates + ledger.voidSlots;
  return writeSnapshot(run, { step, digest: digestBefore(run, ledger, step), slots, coefficients });
}

/** D of what a ledger holds below `step`. */
export function digestBefore(run, ledger, step) {
  const below = ledger.spans().filter(([span]) => span * SPAN_STEPS < step);
  return hashList("sfnode/before/1", [run.runId, u32(step), ...below.flatMap(([span, digest]) => [u32(span), digest])]);
}

export function writeSnapshot(run, { step, digest, slots, coefficients }) {
  const epochs = coefficients.epochs().map((epoch) => writeEpoch(epoch, coefficients.flat(epoch)));
  return Buffer.concat([MAGIC, run.runId, u32(step), digest, u64(slots), ...epochs]);
}

function u64(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

function widthOf(values) {
  const fits = (width) => values.every((value) => BigInt.asIntN(8 * width, value) === value);
  return WIDTHS.find(fits);
}

function writeEpoch(epoch, flat) {
  const values = [...flat].map(BigInt);
  const width = widthOf(values);
  const wide = Buffer.alloc(8 * values.length);
  values.forEach((value, index) => wide.writeBigInt64LE(value, 8 * index));
  const cut = values.map((_, index) => wide.subarray(8 * index, 8 * index + width));
  return Buffer.concat([u32(epoch), Buffer.of(width), ...cut]);
}

/** {step, digest, slots, epochs: list of [epoch, list of BigInt]}. */
export function readSnapshot({ manifest, runId }, data) {
  const isSnapshot = data.length >= HEAD_BYTES && data.length <= FILE_BYTES_MAX && data.subarray(0, 16).equals(MAGIC);
  rejectUnless(isSnapshot, "SNAPSHOT_FORMAT", "another beginning");
  rejectUnless(data.subarray(16, 48).equals(runId), "RUN_ID");
  const step = data.readUInt32BE(48);
  rejectUnless(isStep(manifest, step), "SNAPSHOT_FORMAT", `step ${step}`);
  const { rank, epoch_steps: epochSteps } = manifest.method;
  const size = manifest.tensors.reduce((sum, { kind }) => sum + (kind === "matrix" ? rank * rank : rank), 0);
  const epochs = [];
  for (let rest = data.subarray(HEAD_BYTES); rest.length > 0; ) {
    const [epoch, values, bytes] = readEpoch(rest, size);
    const isNext = epoch > (epochs.at(-1)?.[0] ?? -1) && epoch * epochSteps < step;
    rejectUnless(isNext, "SNAPSHOT_FORMAT", `epoch ${epoch}`);
    epochs.push([epoch, values]);
    rest = rest.subarray(bytes);
  }
  return { step, digest: data.subarray(52, 84), slots: data.readBigUInt64BE(84), epochs };
}

function readEpoch(data, size) {
  const width = data[4];
  const bytes = 5 + size * width;
  rejectUnless(WIDTHS.includes(width) && data.length >= bytes, "SNAPSHOT_FORMAT", "cut off");
  const values = Array.from({ length: size }, (_, index) => readSigned(data.subarray(5 + index * width), width));
  const isLeast = widthOf(values) === width && values.some((value) => value !== 0n);
  rejectUnless(isLeast, "SNAPSHOT_FORMAT", "another spelling");
  return [data.readUInt32BE(0), values, bytes];
}

function readSigned(bytes, width) {
  let value = 0n;
  for (let index = width - 1; index >= 0; index -= 1) value = (value << 8n) | BigInt(bytes[index]);
  return BigInt.asIntN(8 * width, value);
}

/** Rules 3 and 5: {author, step, length, sha256, data}. */
export function parseAttestation(run, data) {
  rejectUnless(data.length === 136, "SNAPSHOT_FORMAT", `${data.length} bytes`);
  const [author, step, length] = [data.subarray(0, 32), data.readUInt32BE(32), data.readUInt32BE(36)];
  const isFile = length >= HEAD_BYTES && length <= FILE_BYTES_MAX;
  rejectUnless(isStep(run.manifest, step) && isFile, "SNAPSHOT_FORMAT", `step ${step}, ${length} bytes`);
  return { author, step, length, sha256: data.subarray(40, 72), data };
}

/** Rule 6. */
export function checkAttested(run, { author, data }) {
  rejectUnless(isValidAuthorKey(author), "AUTHOR_KEY");
  rejectUnless(hasWork(run, author), "AUTHOR_WORK");
  const signed = Buffer.concat([SIGNED_TAG, run.runId, data.subarray(0, 72)]);
  rejectUnless(verify(author, signed, data.subarray(72)), "SIGNATURE");
}

/** {author, step, length, sha256, data}. */
export function checkAttestation(run, data) {
  const attestation = parseAttestation(run, data);
  checkAttested(run, attestation);
  return attestation;
}

/** 136 bytes: what the holder of `secretSeed` signs about a file. */
export function makeAttestation(run, secretSeed, { step, length, sha256 }) {
  const body = Buffer.concat([publicKeyOf(secretSeed), u32(step), u32(length), sha256]);
  return Buffer.concat([body, sign(secretSeed, Buffer.concat([SIGNED_TAG, run.runId, body]))]);
}
