// Cases of ledgers.json: runs of additions and looks at a ledger and its state.

import { Coefficients, epochDigest } from "./coefficients.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { VERDICTS, fromBytesStar, toDecimal, toHex } from "./vector_notation.mjs";
import { runNamed } from "./vector_messages.mjs";
import { shardOf } from "./digests.mjs";

export const LEDGERS = {
  ledger({ manifest, records }, file, expected) {
    const run = runNamed(file, manifest);
    const given = { records: records.map((record) => fromBytesStar(record)), statements: [] };
    return { runs: expected.runs.map((events) => playEvents(run, given, events)) };
  },
};

/** given: {records, statements}, which the events name by their places, and statementsMax where it is small. */
export function playEvents(run, given, events) {
  const state = { ledger: new Ledger(run, given.statementsMax), coefficients: new Coefficients(run) };
  return events.map((event) => {
    if ("look" in event) return { look: look(state, event.look) };
    return "state" in event ? tell(state, given.statements, event) : add(state, given.records, event);
  });
}

function tell({ ledger, coefficients }, statements, { state: index }) {
  const { verdict, reason } = ledger.state(statements[index], coefficients);
  return { state: index, verdict: VERDICTS[verdict], reason };
}

function add({ ledger, coefficients }, records, { add: index, horizon_step: horizon }) {
  const { verdict, reason } = addTo(ledger, coefficients, records[index], horizon ?? Infinity);
  return { add: index, horizon_step: horizon, verdict: VERDICTS[verdict], reason };
}

/** What is now, with the members and the positions of coefficients that `expected` asks for. */
function look({ ledger, coefficients }, expected) {
  const found = {
    updates: ledger.updates,
    void_slots: ledger.voidSlots,
    root: toHex(ledger.root()),
    state_digest: toHex(coefficients.digest()),
    epochs: coefficients.epochs().map((epoch) => lookEpoch(coefficients, epoch, expected.epochs)),
  };
  return "spans" in expected ? { ...found, spans: lookSpans(ledger) } : found;
}

function lookEpoch(coefficients, epoch, expectedEpochs) {
  const flat = coefficients.flat(epoch);
  const asked = expectedEpochs.find((expected) => expected.epoch === epoch)?.values ?? [];
  const values = asked.map(([position]) => [position, toDecimal(flat[position])]);
  return { epoch, digest: toHex(epochDigest(flat)), size: flat.length, values };
}

function lookSpans(ledger) {
  return ledger.spans().map(([span, digest]) => {
    const buckets = ledger.buckets(span).sort(([a], [b]) => Buffer.compare(a, b));
    const shards = ledger.shards(span).map(([shard, shardDigest]) => {
      const inShard = buckets.filter(([author]) => shardOf(author) === shard);
      return { shard, digest: toHex(shardDigest), authors: inShard.map((bucket) => lookAuthor(ledger, span, bucket)) };
    });
    return { span, digest: toHex(digest), shards };
  });
}

function lookAuthor(ledger, span, [author, digest]) {
  const steps = ledger.steps(span, author);
  return {
    author: toHex(author),
    digest: toHex(digest),
    valid: steps.valid,
    void: steps.void,
    payload_hashes: ledger.payloadHashes(span, author).map(toHex),
  };
}
