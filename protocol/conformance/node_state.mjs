// What a node holds (SPEC 7): the ledger, the sum over it, and the records of authors who are not admitted any more.

import { Coefficients } from "./coefficients.mjs";
import { SPAN_STEPS } from "./digests.mjs";
import { parseRecord } from "./envelope.mjs";
import { Ledger } from "./ledger.mjs";

export class State {
  #authors = new Map(); // hex -> author, of whom something is or was held
  #suspended = []; // records (7.7)
  #highest = null; // hex of an author -> highest step held; null after a change, like the next two
  #root = null;
  #digest = null;

  constructor(run) {
    this.run = run;
    this.ledger = new Ledger(run);
    this.coefficients = new Coefficients(run);
  }

  get roster() {
    return this.ledger.roster;
  }

  get hasSuspended() {
    return this.#suspended.length > 0;
  }

  /** The ledger's outcome of one record. */
  add(record, horizon = Infinity) {
    const outcome = this.ledger.add(record, horizon);
    if (outcome.verdict === "counts") this.coefficients.add(outcome.envelope);
    if (outcome.verdict === "voids") this.coefficients.removePayload(outcome.removed);
    if (outcome.envelope !== undefined) this.#authors.set(outcome.envelope.author.toString("hex"), outcome.envelope.author);
    this.#changed();
    return outcome;
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

  /** A record from the disk. It counted once: if its author is not admitted now, it is suspended. */
  load(record) {
    const { reason } = this.add(record);
    if (reason === "NOT_ADMITTED") this.#suspended.push(record);
  }

  /** Takes a statement in: {verdict, reason, key}. Records that it leaves no slot are suspended or gone. */
  state(data) {
    const before = this.records();
    const outcome = this.ledger.state(data, this.coefficients);
    this.#changed();
    if (outcome.verdict !== "counts") return outcome;
    const held = new Set(this.records());
    const dropped = before.filter((record) => !held.has(record));
    this.#suspended.push(...dropped.filter((record) => !this.roster.isAdmitted(record.subarray(0, 32))));
    this.#bringBack();
    return outcome;
  }

  /** SPEC 7.7: whoever is admitted again has their records added again. */
  #bringBack() {
    const isBack = (record) => this.roster.isAdmitted(record.subarray(0, 32));
    const back = this.#suspended.filter(isBack);
    this.#suspended = this.#suspended.filter((record) => !isBack(record));
    for (const record of back) this.add(record);
  }

  /** Every record held, both of a void slot too. */
  records() {
    const spans = Math.ceil(this.run.manifest.steps / SPAN_STEPS);
    const slots = [...this.#authors.values()].flatMap((author) =>
      Array.from({ length: spans }, (_, span) => [...this.ledger.slots(span, author).values()]).flat(),
    );
    return slots.flatMap(({ records }) => records);
  }

  /** Map of hex of the author -> highest step held, void slots included. */
  highest() {
    if (this.#highest !== null) return this.#highest;
    this.#highest = new Map();
    for (const record of this.records()) {
      const { author, step } = parseRecord(this.run.manifest, record);
      const name = author.toString("hex");
      this.#highest.set(name, Math.max(step, this.#highest.get(name) ?? -1));
    }
    return this.#highest;
  }

  highestOf(author) {
    return this.highest().get(author.toString("hex")) ?? -1;
  }

  hasRoomFor(author) {
    return this.highestOf(author) >= 0 || this.highest().size < this.run.manifest.authors_max;
  }

  /** First step of an author that does not count. */
  countsUntil(author) {
    return this.roster.isAdmitted(author) ? this.roster.excludedFrom(author) : 0;
  }

  /** The sum over all that counts of rounds that begin below `step`, and how many slots are held there (SPEC 9.5). */
  before(step) {
    const { manifest } = this.run;
    const coefficients = new Coefficients(this.run);
    let slots = 0;
    for (const record of this.records()) {
      const envelope = parseRecord(manifest, record);
      const slot = this.ledger.slot(envelope.author, envelope.step);
      if (envelope.step >= step || slot.records[0] !== record) continue;
      slots += 1;
      if (!slot.isVoid) coefficients.add(envelope);
    }
    return { slots, coefficients };
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
