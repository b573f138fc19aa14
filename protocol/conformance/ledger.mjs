// The set of valid envelopes: slots, void slots, the author table and the digests (SPEC 7.1 to 7.3, 7.5, 7.7).

import { SPAN_STEPS, bucketDigest, payloadHash, rootDigest, shardDigest, shardOf, spanDigest } from "./digests.mjs";
import { checkCheapRules, checkCostlyRules } from "./envelope.mjs";
import { Roster } from "./statements.mjs";
import { Rejected } from "./verdicts.mjs";

export class Ledger {
  #run;
  #authors = new Map(); // hex of the author -> {author, shard, spans: Map of span -> Map of step -> slot}
  #suspended = new Map(); // hex of an author who is not admitted any more -> records that held slots
  updates = 0; // slots that count
  voidSlots = 0;

  constructor(run, statementsMax) {
    this.#run = run;
    this.roster = new Roster(run, statementsMax);
  }

  /**
   * Passes one record through every rule in the order of 6.2.
   * Returns {verdict: "counts" | "voids" | "ignore" | "reject", reason, envelope, removed}; `removed` is the payload
   * that counted until a second one made the slot void. horizon: largest step that a new slot may have (7.3.3).
   */
  add(record, horizon = Infinity) {
    try {
      const envelope = checkCheapRules(this.#run, record);
      const reason = this.#ignoreReason(envelope, horizon);
      if (reason !== null) return { verdict: "ignore", reason };
      checkCostlyRules(this.#run, envelope);
      return this.#keep(envelope, record);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      return { verdict: "reject", reason: error.reason };
    }
  }

  #ignoreReason(envelope, horizon) {
    const slot = this.slot(envelope.author, envelope.step);
    if (slot !== undefined) {
      if (slot.isVoid) return "SLOT_VOID";
      if (slot.payload.equals(envelope.payload)) return "ALREADY_HELD";
    }
    const barred = this.roster.ignoreReasonOf(envelope);
    if (barred !== null || slot !== undefined) return barred;
    if (envelope.step > horizon) return "TOO_EARLY";
    return this.hasRoomFor(envelope.author) ? null : "AUTHORS_FULL";
  }

  /** Takes a statement in: {verdict, reason}; `coefficients` follow what counts no more, and what counts again. */
  state(data, coefficients) {
    const { verdict, reason, authors = [] } = this.roster.add(data);
    for (const author of authors) {
      for (const payload of this.#drop(author)) coefficients.removePayload(payload);
      if (this.roster.isAdmitted(author)) this.#bringBack(author, coefficients);
    }
    return { verdict, reason };
  }

  get hasSuspended() {
    return this.#suspended.size > 0;
  }

  /** Empties the author's slots that the roster does not leave; the payloads that counted. */
  #drop(author) {
    const name = author.toString("hex");
    const spans = this.#authors.get(name)?.spans ?? new Map();
    const dropped = [];
    for (const [span, slots] of spans) {
      const isLeft = ([step]) => this.roster.leaves(author, step);
      dropped.push(...[...slots].filter((slot) => !isLeft(slot)).map(([, slot]) => slot));
      spans.set(span, new Map([...slots].filter(isLeft)));
      if (spans.get(span).size === 0) spans.delete(span);
    }
    if (spans.size === 0) this.#authors.delete(name);
    if (dropped.length > 0 && !this.roster.isAdmitted(author)) this.#suspend(name, dropped);
    const counted = dropped.filter(({ isVoid }) => !isVoid);
    this.updates -= counted.length;
    this.voidSlots -= dropped.length - counted.length;
    return counted.map(({ payload }) => payload);
  }

  /** Keeps a stored record of an author who is not admitted now. */
  suspend(record) {
    this.#suspend(record.toString("hex", 0, 32), [{ records: [record] }]);
  }

  #suspend(name, slots) {
    const held = this.#suspended.get(name) ?? [];
    this.#suspended.set(name, [...held, ...slots.flatMap(({ records }) => records)]);
  }

  #bringBack(author, coefficients) {
    const name = author.toString("hex");
    const records = this.#suspended.get(name) ?? [];
    this.#suspended.delete(name);
    for (const record of records) addTo(this, coefficients, record);
  }

  #keep(envelope, record) {
    const slots = this.#slotsOf(envelope.author, Math.floor(envelope.step / SPAN_STEPS));
    const slot = slots.get(envelope.step);
    if (slot === undefined) {
      slots.set(envelope.step, { payload: envelope.payload, isVoid: false, records: [record] });
      this.updates += 1;
      return { verdict: "counts", reason: null, envelope, removed: null };
    }
    const removed = slot.payload;
    slots.set(envelope.step, { payload: null, isVoid: true, records: [...slot.records, record] });
    this.updates -= 1;
    this.voidSlots += 1;
    return { verdict: "voids", reason: null, envelope, removed };
  }

  #slotsOf(author, span) {
    const name = author.toString("hex");
    if (!this.#authors.has(name)) this.#authors.set(name, { author, shard: shardOf(author), spans: new Map() });
    const { spans } = this.#authors.get(name);
    if (!spans.has(span)) spans.set(span, new Map());
    return spans.get(span);
  }

  holdsAnyOf(author) {
    return this.#authors.has(author.toString("hex"));
  }

  /** SPEC 7.3.4: whether the author table holds the author, or has room. */
  hasRoomFor(author) {
    return this.holdsAnyOf(author) || this.#authors.size < this.#run.manifest.authors_max;
  }

  /** Every slot below a step, void ones included, in no particular order. */
  slotsBelow(step) {
    const slots = [...this.#authors.values()].flatMap(({ spans }) => [...spans.values()].flatMap((held) => [...held]));
    return slots.filter(([each]) => each < step).map(([, slot]) => slot);
  }

  /** {payload, isVoid, records} or undefined. records: the one that counts, or the two that made the slot void. */
  slot(author, step) {
    return this.slots(Math.floor(step / SPAN_STEPS), author).get(step);
  }

  /** Map of step -> slot of one author within a span. */
  slots(span, author) {
    return this.#authors.get(author.toString("hex"))?.spans.get(span) ?? new Map();
  }

  /** Map of shard -> list of [author, bucket digest] of those with a slot in this span. */
  #bucketsByShard(span) {
    const grouped = new Map();
    for (const { author, shard, spans } of this.#authors.values()) {
      if (!spans.has(span)) continue;
      if (!grouped.has(shard)) grouped.set(shard, []);
      grouped.get(shard).push([author, bucketDigest(span, author, spans.get(span))]);
    }
    return grouped;
  }

  /** List of [author, bucket digest] of those with a slot in this span. */
  buckets(span) {
    return [...this.#bucketsByShard(span).values()].flat();
  }

  /** List of [shard, digest], ascending. */
  shards(span) {
    const digests = [...this.#bucketsByShard(span)].map(([shard, buckets]) => [shard, shardDigest(buckets)]);
    return digests.sort(([a], [b]) => a - b);
  }

  /** List of [span, digest], ascending. */
  spans() {
    const numbers = new Set([...this.#authors.values()].flatMap((entry) => [...entry.spans.keys()]));
    return [...numbers].sort((a, b) => a - b).map((span) => [span, spanDigest(this.shards(span))]);
  }

  root() {
    return rootDigest(this.#run.runId, this.spans(), this.roster.isEmpty ? [] : [this.roster.digest()]);
  }

  /** Steps of an author's slots within a span, ascending: {valid: those that count, void}. */
  steps(span, author) {
    const slots = this.slots(span, author);
    const all = [...slots.keys()].sort((a, b) => a - b);
    return { valid: all.filter((step) => !slots.get(step).isVoid), void: all.filter((step) => slots.get(step).isVoid) };
  }

  /** Payload hash of each slot that counts, by step. */
  payloadHashes(span, author) {
    const slots = this.slots(span, author);
    return this.steps(span, author).valid.map((step) => payloadHash(slots.get(step).payload));
  }
}

/** Adds one record to a ledger and to its coefficients; the ledger's outcome. */
export function addTo(ledger, coefficients, record, horizon = Infinity) {
  const outcome = ledger.add(record, horizon);
  if (outcome.verdict === "counts") coefficients.add(outcome.envelope);
  if (outcome.verdict === "voids") coefficients.removePayload(outcome.removed);
  return outcome;
}
