// Cases of manifests.json, envelopes.json, messages.json and sync.json: `input` to what is expected.
// `file` is the whole vector file, whose manifests and ledgers the cases name.

import { payloadHash } from "./digests.mjs";
import { checkRecord, makeRecord, splitRecords } from "./envelope.mjs";
import { readManifest, readSignedManifest } from "./manifest.mjs";
import { coefficientBound, coefficientCount } from "./manifest_rules.mjs";
import { replay } from "./replay.mjs";
import { answer, checkAnswer } from "./sync.mjs";
import { asWritten, fromBytesStar, fromHex, toDecimal, toHex, toKey, verdictOf } from "./vector_notation.mjs";
import { decodeMessage } from "./wire.mjs";

const runs = new Map(); // canonical text -> run

/** The run of a manifest that the file names. */
export function runNamed(file, name) {
  const text = file.manifests[name];
  if (!runs.has(text)) runs.set(text, readManifest(Buffer.from(text, "utf8")));
  return runs.get(text);
}

export const MANIFESTS = {
  decode_run: ({ data }, file) =>
    verdictOf(() => {
      const { manifest, runId } = readSignedManifest(fromBytesStar(data, fromBytesStar(file.base)));
      return {
        run_id: toHex(runId),
        coefficients: coefficientCount(manifest),
        coefficient_max: toDecimal(coefficientBound(manifest)),
      };
    }),
};

export const ENVELOPES = {
  decode: ({ manifest, record }, file) =>
    verdictOf(() => {
      const { author, step, seed, scalars, payload } = checkRecord(runNamed(file, manifest), fromBytesStar(record));
      const hash = toHex(payloadHash(payload));
      return { author: toHex(author), step, seed: toKey(seed), scalars, payload_hash: hash };
    }),
  split: ({ manifest, data }, file) =>
    verdictOf(() => ({ records: splitRecords(runNamed(file, manifest).manifest, fromBytesStar(data)).length })),
  seal({ manifest, secret_seed: secretSeed, step, scalars }, file) {
    return { record: toHex(makeRecord(runNamed(file, manifest), fromHex(secretSeed), step, scalars)) };
  },
};

const U64_FIELDS = new Set(["nonce", "updates"]);

function showField([name, value]) {
  return U64_FIELDS.has(name) ? toDecimal(value) : showValue(value);
}

function showValue(value) {
  if (Buffer.isBuffer(value)) return toHex(value);
  return Array.isArray(value) ? value.map(showValue) : value;
}

export const MESSAGES = {
  decode: ({ data }, _, expected) =>
    verdictOf(() => {
      const { name, fields } = decodeMessage(fromBytesStar(data));
      const shown = Object.entries(fields).map(showField);
      return "fields" in expected ? { message: name, fields: shown } : { message: name }; // absent where long
    }),
};

export const SYNC = {
  answer({ ledger: name, request }, file, expected) {
    const { manifest, records } = file.ledgers[name];
    const run = runNamed(file, manifest);
    const { ledger } = replay(run, records.map((record) => fromBytesStar(record)));
    const messages = answer(run, ledger, decodeMessage(fromBytesStar(request)));
    return { messages: messages.map((message, index) => asWritten(message, expected.messages[index])) };
  },
  check_answer: ({ manifest, request, answer: reply }, file) =>
    verdictOf(() => {
      const run = manifest === undefined ? null : runNamed(file, manifest);
      checkAnswer(run, decodeMessage(fromBytesStar(request)), decodeMessage(fromBytesStar(reply)));
    }),
};
