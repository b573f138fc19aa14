// With which neighbour a node compares ledgers, and when (SPEC 8.4): heads, sessions, rests, time limits, being live.

import { Session } from "./asking.mjs";
import { answer } from "./sync.mjs";
import { rejectUnless } from "./verdicts.mjs";
import { lowerMedian } from "./node_limits.mjs";

const REQUESTS = new Set([
  "SpansRequest", "ShardsRequest", "AuthorsRequest", "PayloadsRequest", "PullRequest", "StatementsRequest",
]);
const ANSWERS = new Set(["Spans", "Shards", "Authors", "Payloads", "PullDone", "Statements"]);
const MISMATCHES_MIN = 2;
const REQUEST_MAX = 0xffffffff;

export class Synchroniser {
  #state;
  #limits;
  #shared = { taken: new Set(), compared: new Set() }; // by all sessions
  #neighbours = new Map(); // peer -> {session, askedMs, heardMs, isAskedAgain, restUntilMs, headSentMs, head, ...}
  #lastRequest;
  #left = new Set(); // peers that left with #leftRoot
  #leftRoot = null;
  isLive = false;
  metMs = null; // when the first neighbour came
  hasOwn = false;
  answeredMs = -1;

  constructor(state, firstRequest, limits) {
    this.#state = state;
    this.#lastRequest = firstRequest;
    this.#limits = limits;
  }

  get peers() {
    return [...this.#neighbours.keys()];
  }

  isOpen(peer) {
    return this.#neighbours.has(peer);
  }

  #heads() {
    return [...this.#neighbours.values()].map(({ head }) => head).filter((head) => head !== null);
  }

  /** Largest number of updates that a neighbour tells. */
  get updatesTold() {
    return Math.max(0, ...this.#heads().map(({ updates }) => Number(updates)));
  }

  /** SPEC 7.3.3: s of what is pushed; -1 before any head. */
  get stepTold() {
    const steps = this.#heads().map(({ step }) => step);
    return steps.length > 0 ? lowerMedian(steps) : -1;
  }

  /** The least work distance in a head (9.6), or null. */
  get nearestWork() {
    const distances = this.#heads().map(({ work_distance: distance }) => distance);
    return distances.length > 0 ? Math.min(...distances) : null;
  }

  /** SPEC 8.4.8: what it holds beyond this root has no place here. */
  #isApart({ head, roots, isFull }, root) {
    return isFull && roots[0].equals(root) && roots[1].equals(head.root);
  }

  /** Whether a session with it can bring nothing. */
  #agrees(neighbour, root) {
    return neighbour.head?.root.equals(root) || this.#isApart(neighbour, root);
  }

  /** How the last heads compare with the own ledger (9.6). */
  agreement() {
    const root = this.#state.root();
    const equal = [...this.#neighbours].filter(([, each]) => this.#agrees(each, root)).map(([peer]) => peer);
    return {
      equal: new Set([...equal, ...this.#leftWith(root)]).size,
      differing: this.#neighbours.size - equal.length,
      nearest: this.nearestWork,
    };
  }

  #leftWith(root) {
    if (this.#leftRoot === null || !this.#leftRoot.equals(root)) [this.#left, this.#leftRoot] = [new Set(), root];
    return this.#left;
  }

  open(peer, nowMs) {
    this.close(peer);
    this.#neighbours.set(peer, {
      session: null, askedMs: 0, heardMs: 0, isAskedAgain: false, restUntilMs: 0,
      headSentMs: null, head: null, mismatches: 0, failures: 0, hasSkipped: false,
      roots: [], isFull: false, // when its last session began, here and there
    });
    this.metMs ??= nowMs;
  }

  close(peer) {
    const neighbour = this.#neighbours.get(peer);
    this.#neighbours.delete(peer);
    neighbour?.session?.release();
    const root = this.#state.root();
    if (neighbour !== undefined && this.#agrees(neighbour, root)) this.#leftWith(root).add(peer);
  }

  headSent(peer, nowMs) {
    this.#neighbours.get(peer).headSentMs = nowMs;
  }

  peersDueForHead(nowMs) {
    const isDue = ({ headSentMs }) => headSentMs === null || nowMs - headSentMs >= this.#limits.HEAD_INTERVAL_MS;
    return [...this.#neighbours].filter(([, neighbour]) => isDue(neighbour)).map(([peer]) => peer);
  }

  /** A head came. options: {horizon, author} of a session that may begin. List of [peer, request]. */
  receiveHead(peer, head, nowMs, options) {
    const neighbour = this.#neighbours.get(peer);
    neighbour.head = head;
    const root = this.#state.root();
    if (this.#agrees(neighbour, root)) {
      neighbour.mismatches = 0;
      this.isLive = true;
      return [];
    }
    neighbour.mismatches += 1;
    const isLasting = !this.isLive || neighbour.mismatches >= MISMATCHES_MIN;
    if (neighbour.session !== null || nowMs < neighbour.restUntilMs || !isLasting) return [];
    const { run } = this.#state;
    const more = { pullBytesMax: this.#limits.PULL_BYTES_MAX, isThorough: neighbour.hasSkipped };
    neighbour.session = new Session(run, this.#state, this.#shared, { ...options, ...more });
    [neighbour.roots, neighbour.isFull] = [[root, head.root], false];
    return this.#ask(peer, neighbour, neighbour.session.start(this.#nextRequest()), nowMs);
  }

  /** Any other message. Rejects UNREQUESTED. List of [peer, message]. */
  receive(peer, message, nowMs) {
    const { run, ledger } = this.#state;
    if (REQUESTS.has(message.name)) return answer(run, ledger, message).map((part) => [peer, part]);
    rejectUnless(ANSWERS.has(message.name), "UNREQUESTED", message.name);
    return this.#continue(peer, message, nowMs);
  }

  #continue(peer, reply, nowMs) {
    const neighbour = this.#neighbours.get(peer);
    if (neighbour?.session?.number !== reply.fields.request) return []; // SPEC 8.4.1: late
    this.answeredMs = nowMs;
    const request = neighbour.session.receive(reply, this.#nextRequest());
    this.hasOwn ||= neighbour.session.hasOwn;
    return this.#ask(peer, neighbour, request, nowMs);
  }

  #ask(peer, neighbour, request, nowMs) {
    if (request === null) {
      this.#end(neighbour, nowMs, neighbour.session.isFailed);
      return [];
    }
    neighbour.askedMs = neighbour.heardMs = nowMs;
    neighbour.isAskedAgain = false;
    return [[peer, request]];
  }

  #end(neighbour, nowMs, isFailed) {
    const { session } = neighbour;
    session.release();
    neighbour.session = null;
    neighbour.mismatches = 0;
    neighbour.cutAt = session.isCut && !isFailed ? session.horizon : null;
    neighbour.hasSkipped = session.hasSkipped;
    neighbour.isFull = session.isFull && !isFailed && !session.hasSkipped && !session.isCut;
    neighbour.failures = isFailed && !session.hasProgressed ? neighbour.failures + 1 : 0;
    const { SYNC_REST_MS: least, SYNC_REST_MS_MAX: most } = this.#limits;
    neighbour.restUntilMs = nowMs + Math.min(least * 2 ** neighbour.failures, most);
    this.isLive ||= !isFailed && !session.hasSkipped; // SPEC 8.4.6
  }

  /** SPEC 8.4: whose last session ended at a horizon. List of [peer, head, horizon]. */
  cutShort() {
    const found = [...this.#neighbours].filter(([, { cutAt }]) => typeof cutAt === "number");
    return found.map(([peer, neighbour]) => {
      const { head, cutAt } = neighbour;
      neighbour.cutAt = null;
      return [peer, head, cutAt];
    });
  }

  /** Its next head begins a session. */
  goOn(peer) {
    const neighbour = this.#neighbours.get(peer);
    neighbour.mismatches = MISMATCHES_MIN;
    neighbour.restUntilMs = 0;
  }

  /** Records came, under this request number. */
  countRecords(peer, request, records, nowMs) {
    const neighbour = this.#neighbours.get(peer);
    if (neighbour.session?.number !== request) return;
    neighbour.session.count(records);
    neighbour.heardMs = this.answeredMs = nowMs;
  }

  /** The horizon of records under this request number. */
  horizonOf(peer, request, otherwise) {
    const { session } = this.#neighbours.get(peer);
    return session?.number === request ? session.horizon : otherwise;
  }

  /** SPEC 8.4.7. */
  tick(nowMs) {
    const again = [];
    const { REQUEST_TIMEOUT_MS: timeoutMs, ANSWER_MS_MAX: answerMs } = this.#limits;
    for (const [peer, neighbour] of this.#neighbours) {
      if (neighbour.session === null) continue;
      const silentMs = nowMs - neighbour.heardMs;
      if (silentMs >= timeoutMs || nowMs - neighbour.askedMs >= answerMs) this.#end(neighbour, nowMs, true);
      else if (silentMs >= timeoutMs / 2 && !neighbour.isAskedAgain) {
        neighbour.isAskedAgain = true;
        again.push([peer, neighbour.session.sent]);
      }
    }
    return again;
  }

  /** SPEC 9.5: whether all that some neighbour holds from this step on was compared. */
  hasComparedFrom(step) {
    const sessions = [...this.#neighbours.values()].map(({ session }) => session).filter((session) => session !== null);
    return sessions.some(({ spans }) => {
      const newer = spans.filter((span) => span * 1024 >= step);
      return newer.length > 0 && newer.every((span) => this.#shared.compared.has(span));
    });
  }

  #nextRequest() {
    this.#lastRequest = (this.#lastRequest % REQUEST_MAX) + 1;
    return this.#lastRequest;
  }
}
