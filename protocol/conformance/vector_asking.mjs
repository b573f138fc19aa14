// Cases of asking.json: what neighbours say, and what they are asked.

import { Asker } from "./asking.mjs";
import { Coefficients } from "./coefficients.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { runNamed } from "./vector_messages.mjs";
import { fromHex, toHex, verdictOf } from "./vector_notation.mjs";
import { decodeMessage } from "./wire.mjs";

export const ASKING = {
  ask({ manifest, records, statements, statements_max: statementsMax, events, ...given }, file) {
    const run = runNamed(file, manifest);
    const held = { ledger: new Ledger(run, statementsMax), coefficients: new Coefficients(run) };
    for (const statement of statements) held.ledger.state(fromHex(statement), held.coefficients);
    for (const record of records) addTo(held.ledger, held.coefficients, fromHex(record));
    const options = { horizon: given.horizon_step ?? Infinity, lastRequest: given.last_request };
    const asker = new Asker(run, held, options);
    return { events: events.map((event) => play(asker, held.ledger, event)) };
  },
};

function play(asker, ledger, event) {
  if ("look" in event) return { look: look(asker, ledger) };
  if ("leave" in event) return asker.leave(event.leave) ?? {};
  return verdictOf(() => ({ sent: asker.hear(event.from, decodeMessage(fromHex(event.message))).map(toHex) }));
}

function look(asker, ledger) {
  const { updates, voidSlots } = ledger;
  return { is_live: asker.isLive, updates, void_slots: voidSlots, root: toHex(ledger.root()) };
}
