// What a node holds (SPEC 7): the ledger and the sum over it, from its disk and from others.

import { Coefficients } from "./coefficients.mjs";
import { parseRecord } from "./envelope.mjs";
import { Ledger, addTo } from "./ledger.mjs";

export class State {
  #highest = null; // hex of an author -> highest step held; null after a change, like the next two
  #root = null;
  #digest = null;

  constructor(run, { STATEMENTS_MAX: statementsMax }) {
    this.run = run;
    this.ledger = new Ledger(run, statementsMax);
    this.coefficients = new Coefficients(run);
  }

  get roster() {
    return this.ledger.roster;
  }

  /** The ledger's outcome of one record. */
  add(record, horizon = Infinity) {
    this.#changed();
    return addTo(this.ledger, this.coefficients, record, horizon);
  }

  /** A record from the disk. It counted once: if its author is not admitted now, it is suspended. */
  load(record) {
    const { reason } = this.add(record);
    if (reason === "NOT_ADMITTED") this.ledger.suspend(record);
  }

  /** Takes a statement in: {verdict, reason}. */
  state(data) {
    this.#changed();
    return this.ledger.state(data, this.coefficients);
  }

  #changed() {
    [this.#highest, this.#root, this.#digest] = [null, null, null];
  }

  /** The ledger's root (7.5). */
  root() {
    this.#root ??= this.ledger.root();
    return this.#root;
  }

  /** The state digest (7.4). */
  digest() {
    this.#digest ??= this.coefficients.digest();
    return this.#digest;
  }

  /** Map of hex of the author -> highest step held, void slots included. */
  highest() {
    if (this.#highest !== null) return this.#highest;
    this.#highest = new Map();
    for (const { records } of this.ledger.slotsBelow(Infinity)) {
      const { author, step } = parseRecord(this.run.manifest, records[0]);
      const name = author.toString("hex");
      this.#highest.set(name, Math.max(step, this.#highest.get(name) ?? -1));
    }
    return this.#highest;
  }

  highestOf(author) {
    return this.highest().get(author.toString("hex")) ?? -1;
  }

  /** The same for the authors whom no exclusion names. */
  standing() {
    const isStanding = ([author]) => this.roster.excludedFrom(Buffer.from(author, "hex")) === Infinity;
    return new Map([...this.highest()].filter(isStanding));
  }

  /** First step of an author that does not count. */
  countsUntil(author) {
    return this.roster.isAdmitted(author) ? this.roster.excludedFrom(author) : 0;
  }

  /** Whether the statements let a record count. */
  counts(record) {
    const { author, step } = parseRecord(this.run.manifest, record);
    return step < this.countsUntil(author);
  }

  /** Whether this very record counts in its slot. */
  holds(record) {
    const { author, step } = parseRecord(this.run.manifest, record);
    const slot = this.ledger.slot(author, step);
    return slot !== undefined && !slot.isVoid && slot.records[0].equals(record);
  }
}
