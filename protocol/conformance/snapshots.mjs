// Snapshots and attestations (SPEC 9.5): the file that a ledger implies, and the rules for bytes.

import { Coefficients } from "./coefficients.mjs";
import { flatLength, isDense } from "./dense.mjs";
import { SPAN_STEPS } from "./digests.mjs";
import { isValidAuthorKey, publicKeyOf, sign, verify } from "./ed25519.mjs";
import { hashList, u32 } from "./hashing.mjs";
import { hasWork } from "./statements.mjs";
import { rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/snapshot1", "ascii");
const SIGNED_TAG = Buffer.from("sfnode/attested1", "ascii");
const HEAD_BYTES = 92;
const FILE_BYTES_MAX = 64 * 1024 * 1024;
const WIDTHS = [1, 2, 4, 8];

const isStep = ({ steps }, step) => step % SPAN_STEPS === 0 && step > 0 && step < steps;

/** The file of all that a ledger holds of the rounds that begin below `step`. */
export function takeSnapshot(run, ledger, step) {
  const epochs = coefficientsBefore(run, ledger, step);
  const written = epochs.epochs().map((epoch) => writeEpoch(epoch, epochs.flat(epoch)));
  const slots = u64(ledger.slotsBelow(step).length);
  return Buffer.concat([MAGIC, run.runId, u32(step), digestBefore(run, ledger, step), slots, ...written]);
}

function digestBefore(run, ledger, step) {
  const spans = ledger.spans().filter(([span]) => span * SPAN_STEPS < step);
  const fields = spans.flatMap(([span, digest]) => [u32(span), digest]);
  return hashList("sfnode/before/1", [run.runId, u32(step), ...fields]);
}

function coefficientsBefore(run, ledger, step) {
  const coefficients = new Coefficients(run);
  for (const { isVoid, payload } of ledger.slotsBelow(step)) if (!isVoid) coefficients.addPayload(payload);
  return coefficients;
}

/** What the worker is shown: the snapshot's coefficients with all that counts from its step on. */
export function shownWith(run, { step, epochs }, ledger) {
  const shown = new Coefficients(run);
  for (const [epoch, values] of epochs) shown.setFlat(epoch, values.map(Number));
  const before = new Set(ledger.slotsBelow(step));
  const later = ledger.slotsBelow(Infinity).filter((slot) => !before.has(slot) && !slot.isVoid);
  for (const { payload } of later) shown.addPayload(payload);
  return shown;
}

/** What a whole replay says of a snapshot: "equal", "unequal", "other set" or "missing". */
export function judge(run, { step, digest, slots, epochs }, ledger) {
  if (digestBefore(run, ledger, step).equals(digest)) {
    const own = coefficientsBefore(run, ledger, step);
    const isEqual = ([epoch, values]) => own.flat(epoch).every((value, index) => BigInt(value) === values[index]);
    return own.epochs().length === epochs.length && epochs.every(isEqual) ? "equal" : "unequal";
  }
  const isCut = ledger.hasSuspended || [...ledger.roster.exclusions().values()].some((from) => from < step);
  return isCut || BigInt(ledger.slotsBelow(step).length) >= slots ? "other set" : "missing";
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
export function readSnapshot({ manifest, runId }, data, bytesMax = FILE_BYTES_MAX) {
  rejectUnless(data.length >= HEAD_BYTES && data.length <= bytesMax, "SNAPSHOT_FORMAT", `${data.length} bytes`);
  rejectUnless(data.subarray(0, 16).equals(MAGIC), "SNAPSHOT_FORMAT", "another beginning");
  rejectUnless(data.subarray(16, 48).equals(runId), "RUN_ID");
  const step = data.readUInt32BE(48);
  rejectUnless(isStep(manifest, step), "SNAPSHOT_FORMAT", `step ${step}`);
  const { epoch_steps: epochSteps } = manifest.method;
  const size = flatLength(manifest);
  const epochs = [];
  for (let rest = data.subarray(HEAD_BYTES); rest.length > 0; ) {
    const [epoch, values, bytes] = readEpoch(rest, size);
    const isNext = epoch > (epochs.at(-1)?.[0] ?? -1) && epoch * epochSteps < step;
    rejectUnless(isNext, "SNAPSHOT_FORMAT", `epoch ${epoch}`);
    rejectUnless(!isDense(manifest.method) || isDenseState(manifest, values), "SNAPSHOT_FORMAT", "rows or sums");
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

/** {author, step, length, sha256}. */
export function checkAttestation(run, data) {
  const attestation = checkAttestationForm(run, data);
  checkAttestationSigned(run, attestation);
  return attestation;
}

/** Rules 3 and 5. claim: what authors agree on, as a text. */
export function checkAttestationForm({ manifest }, data) {
  rejectUnless(data.length === 136, "SNAPSHOT_FORMAT", `${data.length} bytes`);
  const [author, step, length] = [data.subarray(0, 32), data.readUInt32BE(32), data.readUInt32BE(36)];
  rejectUnless(isStep(manifest, step), "SNAPSHOT_FORMAT", `step ${step}`);
  rejectUnless(length >= HEAD_BYTES && length <= FILE_BYTES_MAX, "SNAPSHOT_FORMAT", `a file of ${length} bytes`);
  return { author, step, length, sha256: data.subarray(40, 72), claim: data.toString("hex", 32, 72), data };
}

/** Rule 6. */
export function checkAttestationSigned(run, { author, data }) {
  rejectUnless(isValidAuthorKey(author), "AUTHOR_KEY");
  rejectUnless(hasWork(run, author), "AUTHOR_WORK");
  const signed = Buffer.concat([SIGNED_TAG, run.runId, data.subarray(0, 72)]);
  rejectUnless(verify(author, signed, data.subarray(72)), "SIGNATURE");
}

/** What the holder of `secretSeed` signs about a file. */
export function makeAttestation(run, secretSeed, { step, length, sha256 }) {
  const body = Buffer.concat([publicKeyOf(secretSeed), u32(step), u32(length), sha256]);
  return Buffer.concat([body, sign(secretSeed, Buffer.concat([SIGNED_TAG, run.runId, body]))]);
}

/** Whether a step's rows and sums can come from messages (9.5.4). */
function isDenseState({ authors_max: authors, method }, [rows, ...sums]) {
  const [most, clip] = [BigInt(authors * method.directions), BigInt(method.clip)];
  return rows <= most && sums.every((sum) => sum <= clip * rows && -sum <= clip * rows);
}
