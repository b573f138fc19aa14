// Cases of snapshots.json.

import { Coefficients } from "./coefficients.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { replay } from "./replay.mjs";
import { checkAttestation, judge, readSnapshot, shownWith, takeSnapshot } from "./snapshots.mjs";
import { runNamed } from "./vector_messages.mjs";
import { fromBytesStar, fromHex, toDecimal, toHex, verdictOf } from "./vector_notation.mjs";

/** The ledger of records and statements: some statements come first, the others after so many records. */
function heldOf(run, { records, statements_first: first = [], statements = [], stated_after: after = 0 }) {
  const held = { ledger: new Ledger(run), coefficients: new Coefficients(run) };
  const given = records.map((record) => fromBytesStar(record));
  const state = (statement) => held.ledger.state(fromHex(statement), held.coefficients);
  const add = (record) => addTo(held.ledger, held.coefficients, record);
  first.forEach((statement) => state(statement));
  given.slice(0, after).forEach((record) => add(record));
  statements.forEach((statement) => state(statement));
  given.slice(after).forEach((record) => add(record));
  return held.ledger;
}

export const SNAPSHOTS = {
  take({ manifest, records, step }, file) {
    const run = runNamed(file, manifest);
    const { ledger } = replay(run, records.map((record) => fromBytesStar(record)));
    return { file: toHex(takeSnapshot(run, ledger, step)) };
  },
  shown({ manifest, snapshot, ...given }, file) {
    const run = runNamed(file, manifest);
    const shown = shownWith(run, readSnapshot(run, fromHex(snapshot)), heldOf(run, given));
    return { epochs: shown.epochs().map((epoch) => [epoch, [...shown.flat(epoch)]]) };
  },
  prove({ manifest, snapshot, ...given }, file) {
    const run = runNamed(file, manifest);
    return { proof: judge(run, readSnapshot(run, fromHex(snapshot)), heldOf(run, given)) };
  },
  decode: ({ manifest, file: data, file_bytes_max: bytesMax }, file) =>
    verdictOf(() => {
      const { step, digest, slots, epochs } = readSnapshot(runNamed(file, manifest), fromHex(data), bytesMax);
      const shown = epochs.map(([epoch, values]) => [epoch, values.map(Number)]);
      return { step, digest: toHex(digest), slots: toDecimal(slots), epochs: shown };
    }),
  attestation: ({ manifest, attestation }, file) =>
    verdictOf(() => {
      const { author, step, length, sha256 } = checkAttestation(runNamed(file, manifest), fromHex(attestation));
      return { author: toHex(author), step, length, sha256: toHex(sha256) };
    }),
};
