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
      const { kind, author, step, token, uses } = checkStatement(runNamed(file, manifest), fromHex(statement));
      return { kind, ...(uses > 1 ? { uses } : {}), author: toHex(author), from_step: step, token: token === null ? "" : toHex(token) };
    }),
  ledger({ manifest, records, statements, statements_max: statementsMax }, file, expected) {
    const run = runNamed(file, manifest);
    const [made, said] = [records.map((record) => fromBytesStar(record)), statements.map(fromHex)];
    const given = { records: made, statements: said, statementsMax };
    return { runs: expected.runs.map((events) => playEvents(run, given, events)) };
  },
  answer({ manifest, statements, request }, file) {
    const run = runNamed(file, manifest);
    const ledger = new Ledger(run);
    for (const statement of statements) ledger.state(fromHex(statement), new Coefficients(run));
    return { messages: answer(run, ledger, decodeMessage(fromHex(request))).map(toHex) };
  },
};
