// Replays a file of records under a signed manifest and prints one JSON line with the resulting digests.
// Usage: node replay.mjs RUN_FILE RECORDS_FILE

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Coefficients } from "./coefficients.mjs";
import { splitRecords } from "./envelope.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { readSignedManifest } from "./manifest.mjs";

/** Passes records through all rules, in order, into a fresh {ledger, coefficients, outcomes}. */
export function replay(run, records) {
  const ledger = new Ledger(run);
  const coefficients = new Coefficients(run);
  const outcomes = records.map((record) => addTo(ledger, coefficients, record));
  return { ledger, coefficients, outcomes };
}

function summary(run, { ledger, coefficients, outcomes }) {
  return {
    run_id: run.runId.toString("hex"),
    records: outcomes.length,
    rejected: outcomes.filter(({ verdict }) => verdict === "reject").length,
    ignored: outcomes.filter(({ verdict }) => verdict === "ignore").length,
    updates: ledger.updates,
    void_slots: ledger.voidSlots,
    root: ledger.root().toString("hex"),
    state_digest: coefficients.digest().toString("hex"),
  };
}

function main([runFile, recordsFile]) {
  if (recordsFile === undefined) throw new Error("usage: node replay.mjs RUN_FILE RECORDS_FILE");
  const run = readSignedManifest(readFileSync(runFile));
  const records = splitRecords(run.manifest, readFileSync(recordsFile));
  console.log(JSON.stringify(summary(run, replay(run, records))));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) main(process.argv.slice(2));
