// Cases of statements.json: work, statements, and ledgers that are told both records and statements.

import { Coefficients } from "./coefficients.mjs";
import { Ledger } from "./ledger.mjs";
import { checkStatement, Roster, workOf } from "./statements.mjs";
import { answer } from "./sync.mjs";
import { playEvents } from "./vector_ledgers.mjs";
import { fromBytesStar, fromHex, toHex, verdictOf } from "./vector_notation.mjs";
import { runNamed } from "./vector_messages.mjs";
import { decodeMessage } from "./wire.mjs";

export const STATEMENTS = {
  work: ({ run_id: runId, author }) => ({ bits: workOf(fromHex(runId), fromHex(author)) }),
  decode: ({ manifest, statement }, file) =>
    verdictOf(() => {
      const { kind, author, step, token, epoch = 0, sha256 = null } = checkStatement(runNamed(file, manifest), fromHex(statement));
      const hexOf = (bytes) => (bytes === null ? "" : toHex(bytes));
      const fields = { kind, author: hexOf(author), from_step: step, token: hexOf(token) };
      return { ...fields, from_epoch: epoch, sha256: hexOf(sha256) };
    }),
  ledger({ manifest, records, statements, statements_max: statementsMax }, file, expected) {
    const run = runNamed(file, manifest);
    const [made, said] = [records.map((record) => fromBytesStar(record)), statements.map(fromHex)];
    const given = { records: made, statements: said, statementsMax };
    return { runs: expected.runs.map((events) => playEvents(run, given, events)) };
  },
  renewals({ manifest, statements }, file) {
    const roster = new Roster(runNamed(file, manifest));
    const verdicts = statements.map((statement) => roster.add(fromHex(statement)).reason);
    return { verdicts, renewals: roster.renewals(), digest: toHex(roster.digest()) };
  },
  answer({ manifest, statements, request }, file) {
    const run = runNamed(file, manifest);
    const ledger = new Ledger(run);
    for (const statement of statements) ledger.state(fromHex(statement), new Coefficients(run));
    return { messages: answer(run, ledger, decodeMessage(fromHex(request))).map(toHex) };
  },
};
