// The signed manifest of a run (SPEC 1.3): its rules in order, its canonical bytes, its run id.

import { verify } from "./ed25519.mjs";
import { hashFields } from "./hashing.mjs";
import { parseJson, writeCanonical } from "./json.mjs";
import { readFields } from "./manifest_fields.mjs";
import { checkRules } from "./manifest_rules.mjs";
import { Rejected, rejectUnless } from "./verdicts.mjs";

const SIGNED_BYTES_MAX = 1048576;
const SIGNATURE_LINE_BYTES = 128;
const NEWLINE = 0x0a;
const SIGNING_TAG = Buffer.from("sfnode/manifest/1", "ascii");

export function runIdOf(canonical) {
  return hashFields("sfnode/run/1", canonical);
}

/** What every other module calls a run: {manifest, runId, canonical}. Rejects in the order of 1.3. */
export function readSignedManifest(bytes) {
  rejectUnless(bytes.length <= SIGNED_BYTES_MAX, "SIZE", `${bytes.length} bytes`);
  const [canonical, signatureLine] = splitLines(bytes);
  const run = readManifest(canonical);
  rejectUnless(/^[0-9a-f]{128}$/.test(signatureLine.toString("latin1")), "MANIFEST_FORMAT", "signature is no hex");
  const signature = Buffer.from(signatureLine.toString("latin1"), "hex");
  const signed = Buffer.concat([SIGNING_TAG, run.runId]);
  rejectUnless(verify(Buffer.from(run.manifest.owner, "hex"), signed, signature), "MANIFEST_SIGNATURE");
  return run;
}

function splitLines(bytes) {
  const first = bytes.indexOf(NEWLINE);
  const isTwoLines = first >= 0 && bytes.indexOf(NEWLINE, first + 1) === bytes.length - 1;
  rejectUnless(isTwoLines && bytes.length - first - 2 === SIGNATURE_LINE_BYTES, "MANIFEST_FORMAT", "not two lines");
  return [bytes.subarray(0, first), bytes.subarray(first + 1, -1)];
}

/** The rules that concern the first line alone (1.3.2 to 1.3.5). */
export function readManifest(line) {
  const parsed = parseLine(line);
  const format = parsed instanceof Map ? parsed.get("format") : undefined;
  const isOtherFormat = typeof format === "number" && format !== 6;
  rejectUnless(!isOtherFormat, "MANIFEST_FORMAT", `format ${format}: update this program`);
  const manifest = readFields(parsed);
  checkRules(manifest);
  const canonical = Buffer.from(writeCanonical(manifest), "ascii");
  rejectUnless(canonical.equals(line), "MANIFEST_FORMAT", "not in canonical form");
  return { manifest, canonical, runId: runIdOf(canonical) };
}

function parseLine(line) {
  try {
    return parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch (error) {
    // TypeError is the decoder's: the bytes are no UTF-8.
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    throw new Rejected("MANIFEST_FORMAT", "the first line is no JSON");
  }
}
