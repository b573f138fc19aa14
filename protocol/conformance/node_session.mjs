// The asking side of anti-entropy (SPEC 8.4): one dialogue with one neighbour, from its spans to the last pull.

import { bucketDigest, shardOf } from "./digests.mjs";
import { recordBytes } from "./envelope.mjs";
import { bitmapOf, checkAnswer, demand, stepsOf } from "./sync.mjs";
import { decodeMessage, encodeMessage } from "./wire.mjs";

const NO_STATEMENTS = Buffer.alloc(16);
const KEY_BYTES = 33; // of a statement

/** What the sessions of one node share: the buckets that one of them is pulling, and the spans that one has taken in. */
export class SharedWork {
  #taken = new Set();
  compared = new Set();

  take(span, author) {
    const bucket = `${span} ${author.toString("hex")}`;
    if (this.#taken.has(bucket)) return null;
    this.#taken.add(bucket);
    return bucket;
  }

  release(buckets) {
    for (const bucket of buckets) this.#taken.delete(bucket);
  }
}

export class Session {
  #state;
  #shared;
  #limits;
  #own;
  #held = []; // buckets that this session is pulling
  #dialogue;
  #pulled = 0; // records in answer to the pull in flight
  #skipped = 0; // buckets left to other sessions
  horizon;
  inFlight = null; // decoded
  hasProgressed = false; // a record came that was asked for
  isShort = false; // the neighbour did not send what it promised
  hasOwn = false; // all that it holds of `own` is here
  spans = [];

  /** horizon: 7.3.3, or Infinity. own: the author of whom all is asked for first (9.5), or null. */
  constructor(state, shared, limits, { horizon, own }) {
    this.#state = state;
    this.#shared = shared;
    this.#limits = limits;
    this.#own = own;
    this.horizon = horizon;
    this.#dialogue = this.#compare();
  }

  get hasSkipped() {
    return this.#skipped > 0;
  }

  /** The first request under this number: bytes. */
  start(number) {
    return this.#advance(undefined, number);
  }

  /** Takes an answer in; the next request, or null at the end. Rejects UNREQUESTED. */
  receive(reply, number) {
    return this.#advance(reply, number);
  }

  isAnswer(number) {
    return this.inFlight !== null && this.inFlight.fields.request === number;
  }

  countRecords(count) {
    this.#pulled += count;
    this.hasProgressed ||= count > 0;
  }

  close() {
    this.#release();
    this.inFlight = null;
  }

  #advance(reply, number) {
    if (reply !== undefined) checkAnswer(this.#state.run, this.inFlight, reply);
    const { done, value } = this.#dialogue.next(reply?.fields);
    if (done) {
      this.close();
      return null;
    }
    const [name, ...fields] = value;
    const request = encodeMessage(name, number, ...fields);
    this.inFlight = decodeMessage(request);
    return request;
  }

  #release() {
    this.#shared.release(this.#held);
    this.#held = [];
  }

  // --- the dialogue: each yield is a request, and gives the fields of its answer

  *#compare() {
    const { roster, ledger } = this.#state;
    const { statements, spans } = yield ["SpansRequest"];
    if (!statements.equals(NO_STATEMENTS) && !statements.equals(roster.digest())) yield* this.#fetchStatements();
    this.spans = spans.map(([span]) => span);
    if (this.#own !== null) yield* this.#askForOwn();
    const held = new Map(ledger.spans());
    for (const [span, digest] of this.#own === null ? spans : [...spans].reverse()) {
      if (held.get(span)?.equals(digest)) this.#shared.compared.add(span);
      else if (!this.isShort) yield* this.#compareSpan(span);
    }
  }

  /** SPEC 9.5: all that the neighbour holds of the node's own key, the newest spans first. */
  *#askForOwn() {
    const before = Buffer.from((BigInt(`0x${this.#own.toString("hex")}`) - 1n).toString(16).padStart(64, "0"), "hex");
    for (const span of [...this.spans].reverse()) {
      const { authors } = yield ["AuthorsRequest", span, [shardOf(this.#own)], before];
      yield* this.#pullPage(span, authors.filter(([author]) => author.equals(this.#own)));
    }
    this.hasOwn = !this.isShort && !this.hasSkipped;
  }

  *#fetchStatements() {
    let after = Buffer.alloc(KEY_BYTES);
    let total = 0;
    for (let isLast = false; !isLast; ) {
      const page = yield ["StatementsRequest", after];
      total += page.statements.length;
      demand(total <= 2 * this.#limits.STATEMENTS_MAX, "more statements than any node holds");
      [after, isLast] = [page.statements.at(-1)?.subarray(0, KEY_BYTES) ?? after, page.is_last];
    }
  }

  *#compareSpan(span) {
    const { shards } = yield ["ShardsRequest", span];
    const held = new Map(this.#state.ledger.shards(span));
    const differing = shards.filter(([shard, digest]) => !held.get(shard)?.equals(digest)).map(([shard]) => shard);
    const skippedBefore = this.#skipped;
    let after = Buffer.alloc(32);
    let total = 0;
    for (let isLast = differing.length === 0; !isLast && !this.isShort; ) {
      const page = yield ["AuthorsRequest", span, differing, after];
      total += page.authors.length;
      demand(total <= this.#state.run.manifest.authors_max, "more authors than the table holds");
      yield* this.#pullPage(span, page.authors);
      [after, isLast] = [page.authors.at(-1)?.[0] ?? after, page.is_last];
    }
    if (!this.isShort && this.#skipped === skippedBefore) this.#shared.compared.add(span);
  }

  *#pullPage(span, authors) {
    const wanted = [];
    for (const [author, ...holdings] of authors) {
      const bucket = this.#shared.take(span, author); // SPEC 8.4.6
      if (bucket === null) {
        this.#skipped += 1;
        continue;
      }
      this.#held.push(bucket);
      const steps = yield* this.#missing(span, author, ...holdings);
      wanted.push(...this.#pieces(steps).map((piece) => [span, author, piece]));
    }
    for (const group of this.#groups(wanted)) {
      this.#pulled = 0;
      yield ["PullRequest", group.map(([, author, steps]) => [span, author, bitmapOf(steps)])];
      if (this.#pulled < slotsIn(group)) {
        this.isShort = true; // SPEC 8.4.5
        break;
      }
    }
    this.#release();
  }

  /** Steps to pull of one author. */
  *#missing(span, author, digest, validMap, voidMap) {
    const slots = this.#state.ledger.slots(span, author);
    if (slots.size > 0 && bucketDigest(span, author, slots).equals(digest)) return [];
    const [valid, voided] = [stepsOf(validMap, span), stepsOf(voidMap, span)];
    const isVoidHere = (step) => slots.get(step)?.isVoid === true;
    const unheld = valid.filter((step) => !slots.has(step));
    let missing = [...unheld, ...voided.filter((step) => !isVoidHere(step))].sort((a, b) => a - b);
    const isCommon = valid.some((step) => slots.has(step) && !isVoidHere(step));
    if (missing.length === 0 && isCommon && !explains(span, author, slots, new Set([...valid, ...voided]), digest)) {
      const { hashes } = yield ["PayloadsRequest", span, author];
      missing = this.#differing(span, author, valid, hashes);
    }
    const until = this.#state.countsUntil(author);
    return missing.filter((step) => step < until && step <= this.horizon);
  }

  /** SPEC 8.4.4. */
  #differing(span, author, valid, hashes) {
    if (hashes.length !== 8 * valid.length) {
      this.isShort = true;
      return [];
    }
    const { ledger } = this.#state;
    const own = ledger.payloadHashes(span, author);
    const held = new Map(ledger.steps(span, author).valid.map((step, index) => [step, own[index]]));
    return valid.filter((step, index) => {
      const theirs = hashes.subarray(8 * index, 8 * index + 8);
      return held.has(step) && !held.get(step).equals(theirs);
    });
  }

  /** SPEC 8.4.5. */
  get #slotsPerPull() {
    return Math.max(1, Math.floor(this.#limits.PULL_BYTES_MAX / (2 * recordBytes(this.#state.run.manifest))));
  }

  #pieces(steps) {
    const size = this.#slotsPerPull;
    return Array.from({ length: Math.ceil(steps.length / size) }, (_, i) => steps.slice(i * size, (i + 1) * size));
  }

  #groups(wanted) {
    const groups = [];
    for (const entry of wanted) {
      const last = groups.at(-1);
      const hasRoom = last !== undefined && last.length < this.#limits.PULL_AUTHORS_MAX;
      if (hasRoom && slotsIn(last) + slotsIn([entry]) <= this.#slotsPerPull) last.push(entry);
      else groups.push([entry]);
    }
    return groups;
  }
}

function slotsIn(group) {
  return group.reduce((sum, [, , steps]) => sum + steps.length, 0);
}

/** Whether the own slots at these steps alone would have the digest: then this ledger only holds more. */
function explains(span, author, slots, steps, digest) {
  const within = new Map([...slots].filter(([step]) => steps.has(step)));
  return bucketDigest(span, author, within).equals(digest);
}
