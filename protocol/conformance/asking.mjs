// The asking side of anti-entropy (SPEC 8.4.1 to 8.4.6): which requests follow which answers, and when a node is live.
// There is no clock here: node_sync.mjs sends a request again, and gives a session up.

import { bucketDigest, payloadHash, shardOf } from "./digests.mjs";
import { recordBytes, splitRecords } from "./envelope.mjs";
import { addTo } from "./ledger.mjs";
import { PULL_BYTES_MAX, bitmapOf, checkAnswer, demand, stepsOf } from "./sync.mjs";
import { Rejected } from "./verdicts.mjs";
import { encodeMessage } from "./wire.mjs";

const MISMATCHES_BEFORE_SESSION = 2; // of a live node
const REQUEST_MAX = 0xffffffff;
const PAYLOAD_HASH_BYTES = 8;
const NO_STATEMENTS = Buffer.alloc(16);

export class Asker {
  isLive = false;
  #run;
  #held; // {ledger, coefficients}
  #horizon;
  #lastRequest;
  #neighbours = new Map(); // name -> {mismatches, session: null or Session}
  #shared = { taken: new Set(), compared: new Set() }; // by all sessions

  constructor(run, held, { horizon = Infinity, lastRequest = 0 }) {
    this.#run = run;
    this.#held = held;
    this.#horizon = horizon;
    this.#lastRequest = lastRequest;
  }

  /** A decoded message of a neighbour: the messages (bytes) that it is sent now. Rejects. */
  hear(from, { name, fields }) {
    const neighbour = this.#neighbours.get(from) ?? { mismatches: 0, session: null, hasSkipped: false };
    this.#neighbours.set(from, neighbour);
    if (name === "Head") return this.#hearHead(neighbour, fields);
    if (name === "Records") return this.#takeRecords(neighbour.session, fields);
    if (name === "Statements") for (const statement of fields.statements) this.#takeStatement(statement);
    return this.#continue(neighbour, { name, fields });
  }

  /** A neighbour has gone: others may be asked for what it was asked for. */
  leave(from) {
    this.#neighbours.get(from)?.session?.release();
    this.#neighbours.delete(from);
  }

  #hearHead(neighbour, { root }) {
    if (root.equals(this.#held.ledger.root())) {
      neighbour.mismatches = 0;
      this.isLive = true;
      return [];
    }
    neighbour.mismatches += 1;
    const isLasting = neighbour.mismatches >= MISMATCHES_BEFORE_SESSION || !this.isLive;
    if (neighbour.session !== null || !isLasting) return [];
    const isThorough = neighbour.hasSkipped;
    neighbour.session = new Session(this.#run, this.#held, this.#shared, { horizon: this.#horizon, isThorough });
    return [neighbour.session.start(this.#nextRequest())];
  }

  #takeRecords(session, { request, data }) {
    const records = splitRecords(this.#run.manifest, data);
    const isAnswer = session?.number === request;
    if (isAnswer) session.count(records);
    const { ledger, coefficients } = this.#held;
    for (const record of records) {
      const { verdict, reason } = addTo(ledger, coefficients, record, isAnswer ? session.horizon : this.#horizon);
      if (verdict === "reject") throw new Rejected(reason);
    }
    return [];
  }

  #takeStatement(data) {
    const { verdict, reason } = this.#held.ledger.state(data, this.#held.coefficients);
    if (verdict === "reject") throw new Rejected(reason);
  }

  #continue(neighbour, reply) {
    const { session } = neighbour;
    if (session === null || session.number !== reply.fields.request) return []; // late: nobody's fault
    const request = session.receive(reply, this.#nextRequest());
    if (request !== null) return [request];
    session.release();
    [neighbour.session, neighbour.mismatches, neighbour.hasSkipped] = [null, 0, session.hasSkipped];
    this.isLive ||= !session.isFailed && !session.hasSkipped;
    return [];
  }

  #nextRequest() {
    this.#lastRequest = (this.#lastRequest % REQUEST_MAX) + 1;
    return this.#lastRequest;
  }
}

/** One dialogue with one neighbour, from its spans to the last pull. */
export class Session {
  number = null; // of the request in flight
  sent = null; // the request in flight, as it was sent
  isFailed = false;
  hasProgressed = false; // a record came that was asked for
  hasOwn = false; // all that the neighbour holds of `author` is here
  spans = []; // those that it holds
  isCut = false; // it holds something beyond the horizon
  isFull = false; // it holds something of an author for whom there is no room here
  #run;
  #ledger;
  #taken;
  #compared;
  #author;
  #pullBytesMax;
  #isThorough;
  #asked = new Set(); // slots of the pull in flight of which no record has come
  #skipped = 0; // pages of which something was left
  #dialogue;
  #request; // in flight, as checkAnswer wants it

  /**
   * shared: {taken: slots that some session is pulling, compared: spans that some session has taken in}.
   * author: of whom all is asked for first, and then the newest spans (9.5), or null.
   * isThorough: nothing is left to other sessions.
   */
  constructor(run, { ledger }, shared, options) {
    const { horizon, author = null, pullBytesMax = PULL_BYTES_MAX, isThorough = false } = options;
    this.#run = run;
    this.#ledger = ledger;
    this.#taken = shared.taken;
    this.#compared = shared.compared;
    this.#author = author;
    this.#pullBytesMax = pullBytesMax;
    this.#isThorough = isThorough;
    this.horizon = horizon;
    this.#dialogue = this.#compare();
  }

  get hasSkipped() {
    return this.#skipped > 0;
  }

  start(number) {
    return this.#send(this.#dialogue.next(), number);
  }

  /** The next request, or null at the end. */
  receive(reply, number) {
    checkAnswer(this.#run, this.#request, reply);
    return this.#send(this.#dialogue.next(reply.fields), number);
  }

  /** These records came under the number in flight. */
  count(records) {
    for (const record of records) {
      const slot = slotKey(record.subarray(0, 32), record.readUInt32BE(32));
      if (!this.#asked.delete(slot)) continue;
      this.#taken.delete(slot);
      this.hasProgressed = true;
    }
  }

  release() {
    for (const slot of this.#asked) this.#taken.delete(slot);
    this.#asked.clear();
  }

  #send({ done, value }, number) {
    if (done) return null;
    const [name, fields] = value;
    this.number = number;
    this.#request = { name, fields: { request: number, ...fields } };
    this.sent = encodeMessage(name, number, ...Object.values(fields));
    return this.sent;
  }

  *#compare() {
    const theirs = yield ["SpansRequest", {}];
    const isSame = [NO_STATEMENTS, this.#ledger.roster.digest()].some((digest) => digest.equals(theirs.statements));
    if (!isSame) yield* this.#fetchStatements();
    this.spans = theirs.spans.map(([span]) => span);
    if (this.#author !== null) yield* this.#askForAuthor();
    const wanted = differing(this.#ledger.spans(), theirs.spans).map(([span]) => span);
    for (const span of this.spans) if (!wanted.includes(span)) this.#compared.add(span);
    for (const span of this.#author === null ? wanted : wanted.reverse()) {
      if (span * 1024 > this.horizon) this.isCut = true;
      else if (!this.isFailed) yield* this.#compareSpan(span);
    }
  }

  /** The newest spans first. */
  *#askForAuthor() {
    const author = this.#author;
    const before = Buffer.from((BigInt(`0x${author.toString("hex")}`) - 1n).toString(16).padStart(64, "0"), "hex");
    for (const span of [...this.spans].reverse()) {
      if (this.isFailed) break;
      const page = yield ["AuthorsRequest", { span, shards: [shardOf(author)], after: before }];
      yield* this.#pullPage(span, page.authors.filter(([each]) => each.equals(author)));
    }
    this.hasOwn = !this.isFailed && !this.hasSkipped;
  }

  *#fetchStatements() {
    let [after, isLast, listed] = [Buffer.alloc(33), false, 0];
    while (!isLast) {
      const page = yield ["StatementsRequest", { after }];
      const keys = page.statements.map((statement) => statement.subarray(0, 33));
      listed += keys.filter((key, index) => index < 2 || !key.equals(keys[index - 2])).length;
      demand(listed <= 2 * this.#ledger.roster.statementsMax, "more statements than may be held");
      [after, isLast] = [keys.at(-1) ?? after, page.is_last];
    }
  }

  *#compareSpan(span) {
    const theirs = yield ["ShardsRequest", { span }];
    const shards = differing(this.#ledger.shards(span), theirs.shards).map(([shard]) => shard);
    const skippedBefore = this.#skipped;
    let [after, isLast, listed] = [Buffer.alloc(32), shards.length === 0, 0];
    while (!isLast && !this.isFailed) {
      const page = yield ["AuthorsRequest", { span, shards, after }];
      listed += page.authors.length;
      if (listed > this.#run.manifest.authors_max) {
        this.isFailed = true;
        return;
      }
      yield* this.#pullPage(span, page.authors);
      [after, isLast] = [page.authors.at(-1)?.[0] ?? after, page.is_last];
    }
    if (!this.isFailed && this.#skipped === skippedBefore) this.#compared.add(span);
  }

  *#pullPage(span, authors) {
    const page = []; // {author, missing: steps not yet asked for, pairs: steps of which one record may not be enough}
    for (const [author, digest, valid, voided] of authors) {
      const theirs = { digest, valid: stepsOf(valid, span), void: stepsOf(voided, span) };
      const singles = [...this.#ledger.slots(span, author)].filter(([, { isVoid }]) => !isVoid);
      const pairs = new Set([...theirs.void, ...singles.map(([step]) => step)]);
      page.push({ author, missing: yield* this.#missing(span, author, theirs), pairs });
    }
    yield* this.#pull(span, page, this.#taken);
    if (this.#isThorough && !this.isFailed) yield* this.#pull(span, page, new Set());
    if (!this.isFailed && this.#open(span, page).length > 0) this.#skipped += 1;
  }

  /** As many slots at once as a pull may ask for, in the order of the page, but none that is taken. */
  *#pull(span, page, taken) {
    for (;;) {
      const free = this.#open(span, page).filter(({ author, step }) => !taken.has(slotKey(author, step)));
      if (free.length === 0) return;
      const slots = free.slice(0, this.#slotsPerPull());
      const wanted = [];
      for (const entry of page) {
        const steps = new Set(slots.filter(({ author }) => author === entry.author).map(({ step }) => step));
        entry.missing = entry.missing.filter((step) => !steps.has(step));
        if (steps.size > 0) wanted.push([span, entry.author, bitmapOf(steps)]);
      }
      this.#asked = new Set(slots.map(({ author, step }) => slotKey(author, step)));
      for (const slot of this.#asked) this.#taken.add(slot);
      yield ["PullRequest", { wanted }];
      if (this.#asked.size === 0) continue;
      this.isFailed = true;
      this.release();
      return;
    }
  }

  /** What is missing of a page and has not come since, from anybody: list of {author, step}. */
  #open(span, page) {
    return page.flatMap(({ author, missing, pairs }) => {
      const own = this.#ledger.slots(span, author);
      const hasCome = (step) => own.get(step)?.isVoid || (own.has(step) && !pairs.has(step));
      return missing.filter((step) => !hasCome(step)).map((step) => ({ author, step }));
    });
  }

  /** Steps that are to be pulled, ascending. */
  *#missing(span, author, theirs) {
    const own = this.#ledger.slots(span, author);
    const hasRoom = this.#ledger.hasRoomFor(author);
    const counts = (step) => this.#ledger.roster.leaves(author, step);
    if (!hasRoom && (theirs.valid.some(counts) || theirs.void.some(counts))) this.isFull = true;
    if (bucketDigest(span, author, own).equals(theirs.digest) || !hasRoom) return [];
    const lacking = theirs.valid.filter((step) => !own.has(step));
    const unvoided = theirs.void.filter((step) => !own.get(step)?.isVoid);
    let missing = [...lacking, ...unvoided].sort((a, b) => a - b);
    const hasCommon = theirs.valid.some((step) => own.get(step)?.isVoid === false);
    if (missing.length === 0 && hasCommon && !this.#explains(span, author, theirs)) {
      const { hashes } = yield ["PayloadsRequest", { span, author }];
      missing = this.#differingPayloads(own, theirs.valid, hashes);
      const isVoidHere = theirs.valid.some((step) => own.get(step).isVoid);
      if (missing.length === 0 && !this.isFailed && !isVoidHere) missing = theirs.valid; // two payloads with one hash
    }
    missing = missing.filter(counts);
    this.isCut ||= missing.some((step) => step > this.horizon);
    return missing.filter((step) => step <= this.horizon);
  }

  /** Whether what is held here of their slots gives their digest: then this ledger only holds more. */
  #explains(span, author, theirs) {
    const listed = new Set([...theirs.valid, ...theirs.void]);
    const common = new Map([...this.#ledger.slots(span, author)].filter(([step]) => listed.has(step)));
    return bucketDigest(span, author, common).equals(theirs.digest);
  }

  #differingPayloads(own, steps, hashes) {
    if (hashes.length !== PAYLOAD_HASH_BYTES * steps.length) {
      this.isFailed = true;
      return [];
    }
    return steps.filter((step, index) => {
      const slot = own.get(step);
      const theirs = hashes.subarray(PAYLOAD_HASH_BYTES * index, PAYLOAD_HASH_BYTES * (index + 1));
      return slot?.isVoid === false && !payloadHash(slot.payload).equals(theirs);
    });
  }

  /** A void slot has two records, and all slots may be void. */
  #slotsPerPull() {
    return Math.max(1, Math.floor(this.#pullBytesMax / (2 * recordBytes(this.#run.manifest))));
  }
}

/** Those of `theirs` ([number, digest]) that are not in `own` with the same digest. */
function differing(own, theirs) {
  const held = new Map(own);
  return theirs.filter(([number, digest]) => !held.get(number)?.equals(digest));
}

function slotKey(author, step) {
  return `${author.toString("hex")} ${step}`;
}
