// Cases of attestations.json.

import { AttestationTable } from "./attestations.mjs";
import { Coefficients } from "./coefficients.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { runNamed } from "./vector_messages.mjs";
import { VERDICTS, fromHex } from "./vector_notation.mjs";

export const ATTESTATIONS = {
  table({ manifest, ...given }, file, expected) {
    const run = runNamed(file, manifest);
    const held = { ledger: new Ledger(run), coefficients: new Coefficients(run) };
    const limits = { most: given.attestations_max, mostByTeller: given.attestations_per_teller_max };
    const table = new AttestationTable(run, held.ledger, limits);
    return { events: expected.events.map((event) => play(table, held, given, event)) };
  },
};

function play(table, { ledger, coefficients }, { records, statements, attestations }, event) {
  if ("add" in event) addTo(ledger, coefficients, fromHex(records[event.add]));
  else if ("state" in event) ledger.state(fromHex(statements[event.state]), coefficients);
  else if ("leave" in event) table.leave(event.leave);
  else if ("look" in event) return { look: look(table, attestations, event.look) };
  else {
    const { verdict, reason } = table.add(fromHex(attestations[event.attest]), event.teller);
    return { ...event, verdict: VERDICTS[verdict], reason };
  }
  return event;
}

function look(table, attestations, { authors_min: authorsMin }) {
  const places = (found) => found.map(({ data }) => attestations.indexOf(data.toString("hex"))).sort((a, b) => a - b);
  return { authors_min: authorsMin, told: places(table.trusted()), agreed: places(table.agreed(authorsMin)) };
}
