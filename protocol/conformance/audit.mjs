// What an auditor found about one message (SPEC 9.3). Rejects.

import { isDense } from "./dense.mjs";
import { isValidAuthorKey, verify } from "./ed25519.mjs";
import { checkRecord } from "./envelope.mjs";
import { Fraction, parseJson, writeCanonical } from "./json.mjs";
import { directionsMeasured } from "./scalars.mjs";
import { rejectUnless } from "./verdicts.mjs";

const REPORT_BYTES_MAX = 65536;
const TOLERANCE_MAX = 2 ** 31;
const SCALARS_MAX = 16384;
const CLIP_MAX = 32767;
const NORMALISED_CLIP = 127;
const MEAN_SQUARE = 1024; // of normalised scalars
const RECORD_DIGITS_MAX = 2 * 65536;
const NEWLINE = 0x0a;
const SIGNING_TAG = Buffer.from("sfnode/audit/1", "ascii");
const FIELDS = ["auditor", "measured", "record", "run_id", "tolerance_mille"];

function demand(condition, detail) {
  rejectUnless(condition, "AUDIT_FORMAT", detail);
}

const isHex = (text, digits) => typeof text === "string" && text.length === digits && /^[0-9a-f]*$/.test(text);
const isWithin = (value, low, high) => typeof value === "number" && value >= low && value <= high;

/** {auditor, envelope, claimed, measured, toleranceMille} of a report about a run. */
export function readReport(run, data) {
  const bytesMax = isDense(run.manifest.method) ? 2 * REPORT_BYTES_MAX : REPORT_BYTES_MAX;
  rejectUnless(data.length <= bytesMax, "SIZE", `${data.length} bytes`);
  const [line, signature] = splitLines(data);
  const { auditor: auditorHex, measured, record, run_id: runId, tolerance_mille: toleranceMille } = parseLine(line);
  rejectUnless(runId === run.runId.toString("hex"), "RUN_ID");
  const auditor = Buffer.from(auditorHex, "hex");
  const isSigned = isValidAuthorKey(auditor) && verify(auditor, Buffer.concat([SIGNING_TAG, line]), signature);
  rejectUnless(isSigned, "SIGNATURE", "the auditor did not sign");
  const envelope = checkRecord(run, Buffer.from(record, "hex"));
  const claimed = envelope.scalars.slice(isDense(run.manifest.method) ? 1 : 0);
  demand(measured.length === claimed.length, "another number of scalars");
  return { auditor, envelope, claimed, measured, toleranceMille };
}

function splitLines(data) {
  const first = data.indexOf(NEWLINE);
  const isTwoLines = first >= 0 && data.indexOf(NEWLINE, first + 1) === data.length - 1;
  const digits = data.subarray(first + 1, -1).toString("latin1");
  demand(isTwoLines && isHex(digits, 128), "not two lines");
  return [data.subarray(0, first), Buffer.from(digits, "hex")];
}

function parseLine(line) {
  const parsed = parse(line);
  demand(parsed instanceof Map && parsed.size === FIELDS.length && FIELDS.every((name) => parsed.has(name)), "fields");
  const report = Object.fromEntries(parsed);
  demand(isHex(report.auditor, 64) && isHex(report.run_id, 64), "no 64 digits");
  const { record, measured } = report;
  const digits = typeof record === "string" ? record.length : 0;
  const isRecord = digits % 2 === 0 && isWithin(digits, 2, RECORD_DIGITS_MAX);
  demand(isRecord && isHex(record, digits), "no record");
  demand(Array.isArray(measured) && isWithin(measured.length, 1, SCALARS_MAX), "no scalars");
  demand(measured.every((value) => isWithin(value, -CLIP_MAX, CLIP_MAX)), "a scalar out of its bound");
  demand(isWithin(report.tolerance_mille, 0, TOLERANCE_MAX), "no tolerance");
  demand(Buffer.from(writeCanonical(report), "ascii").equals(line), "not in canonical form");
  return report;
}

function parse(line) {
  try {
    return parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    return new Fraction(); // nothing that could be a report
  }
}

/** Whether what was claimed lies further from what was measured than the auditor allows. */
export function isMismatch(claimed, measured, toleranceMille) {
  const distance = Math.hypot(...claimed.map((q, index) => q - measured[index]));
  const size = Math.max(Math.hypot(...measured), Math.sqrt(measured.length));
  return distance / size > toleranceMille / 1000;
}

/** How many directions an auditor measures: as many as a message's scalars show. */
export function directionsShown(method, scalars) {
  const { directions, shares, scalar } = method;
  const shown = directionsMeasured(method, scalars);
  if (scalar === "raw") return shown;
  const steps = Array.from({ length: scalars.length / directions }, (_, k) => scalars.slice(k * directions, (k + 1) * directions));
  const energies = steps.filter((step) => step.every((q) => Math.abs(q) < NORMALISED_CLIP)).map((step) => step.reduce((sum, q) => sum + q * q, 0));
  const blocks = energies.map((energy) => Math.floor((2 * energy + MEAN_SQUARE * shares) / (2 * MEAN_SQUARE * shares)));
  return Math.max(shown, Math.min(directions, Math.max(0, ...blocks) * shares));
}
