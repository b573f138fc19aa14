// The node machine (SPEC 9): events in, effects out, in their order. It knows no socket, file, clock or thread.
// An event is [name, ...], an effect the same; messages in them are bytes.

import { publicKeyOf } from "./ed25519.mjs";
import { makeRecord, splitRecords } from "./envelope.mjs";
import { seedOf } from "./hashing.mjs";
import { StepClock } from "./node_clock.mjs";
import { EndOfRun } from "./node_end.mjs";
import { Flood } from "./node_flood.mjs";
import { Recounts } from "./node_recount.mjs";
import { Snapshots } from "./node_snapshots.mjs";
import { State } from "./node_state.mjs";
import { Synchroniser } from "./node_sync.mjs";
import { Rejected } from "./verdicts.mjs";
import { decodeMessage, encodeMessage } from "./wire.mjs";

const NOT_SUMMED = Buffer.alloc(32); // in a head: the sender's state digest would cost it too much now

export class Node {
  #run;
  #secretSeed;
  #author;
  #config;
  #limits;
  #isWorkerFree = false;
  #isSwitchedOn = true;
  #hasMet = false; // the authors who were at work before it came
  #estimating = null; // the step that the worker measures now
  #firstTickMs = null;
  #nowMs = 0;
  #effects = [];
  ignored = {}; // reason -> how often, in the last event

  /** disk: {statements, records} that are stored, and config.reserved_step. */
  constructor(run, secretSeed, config, disk, limits) {
    this.#run = run;
    this.#secretSeed = secretSeed;
    this.#author = publicKeyOf(secretSeed);
    this.#config = config;
    this.#limits = limits;
    this.state = new State(run, limits);
    for (const statement of disk.statements) this.state.state(statement);
    for (const record of disk.records) this.state.load(record);
    this.clock = new StepClock(run, this.#author.toString("hex"), limits);
    this.sync = new Synchroniser(this.state, config.first_request, limits);
    this.end = new EndOfRun(limits);
    this.flood = new Flood(run, limits);
    this.recounts = new Recounts(limits);
    this.snapshots = new Snapshots(this.state, { secretSeed, author: this.#author }, config, this.sync, limits);
    this.clock.resumeAfter(config.reserved_step);
  }

  /** isLast false: the next event waits already, so queues are not emptied yet. */
  handle([name, ...details], nowMs, isLast = true) {
    this.#effects = [];
    this.ignored = {};
    this.#nowMs = nowMs;
    if (name === "MessageArrived" && !this.sync.isOpen(details[0])) return []; // SPEC 8.5: it was on its way
    const message = name === "MessageArrived" ? decodeMessage(details[1]) : null;
    this.#on[name](...details, message);
    if (!this.#hasMet && (this.sync.isLive || this.snapshots.maySign())) {
      this.#hasMet = true;
      this.clock.meet(this.state.standing(), this.#nowMs, this.sync.stepTold);
    }
    this.#startStepIfDue();
    const isHead = message?.name === "Head";
    if (isHead || name === "Ticked") this.#lookAtEnd(isHead);
    if (isLast) this.#send(this.flood.flush(nowMs));
    return this.#effects;
  }

  #on = {
    PeerJoined: (peer) => {
      this.flood.open(peer);
      this.sync.open(peer, this.#nowMs);
      this.#sendHead(peer);
      this.#send(this.snapshots.peerJoined(peer));
    },
    PeerLeft: (peer) => this.#close(peer),
    MessageArrived: (peer, _bytes, message) => this.#receive(peer, message),
    EstimateFinished: (step, scalars) => this.#publish(step, scalars),
    EstimateSkipped: (step) => this.#passOver(step, true),
    EstimateLost: (step) => this.#passOver(step, false),
    WorkerReady: () => {
      this.#isWorkerFree = true;
    },
    TrainingSwitched: (isOn) => {
      this.#isSwitchedOn = isOn;
    },
    StatementSubmitted: (statement) => this.#takeSubmitted(statement),
    SnapshotArrived: (data) => this.#effects.push(...this.snapshots.arrived(data)),
    FetchFailed: (sha256) => this.snapshots.fetchFailed(sha256, this.#nowMs),
    Ticked: (lateMs) => {
      this.flood.adapt(lateMs);
      this.#tick();
    },
  };

  // --- what others can see of it

  get isFinished() {
    if (this.#estimating !== null) return false;
    if (this.clock.isFinished) return true;
    if (this.#mayContribute() || !(this.sync.isLive || this.sync.peers.length === 0)) return false;
    return this.clock.isRunOver(this.state.standing(), this.#nowMs);
  }

  #frontier() {
    return this.clock.frontier(this.state.standing(), this.#nowMs);
  }

  #send(pairs) {
    for (const [peer, message] of pairs) this.#effects.push(["SendMessage", peer, message]);
  }

  #ignore(reason) {
    this.ignored[reason] = (this.ignored[reason] ?? 0) + 1;
  }

  #sendHead(peer) {
    this.sync.headSent(peer, this.#nowMs);
    const { state, end } = this;
    const told = [state.root(), state.digest(), state.ledger.updates, this.#frontier(), end.workDistance];
    this.#send([[peer, encodeMessage("Head", ...told)]]);
  }

  // --- messages

  #receive(peer, message) {
    try {
      this.#take(peer, message);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      this.#drop(peer, error.reason);
    }
  }

  #take(peer, message) {
    const { name, fields } = message;
    if (name === "Records") this.#takeRecords(peer, fields);
    else if (name === "Statements") this.#takeStatements(peer, message);
    else if (name === "Head") this.#takeHead(peer, fields);
    else if (name === "AttestationsRequest") this.#send([[peer, this.snapshots.page()]]);
    else if (name === "Attestations") this.#takeAttestations(peer, fields.attestations);
    else this.#send(this.sync.receive(peer, message, this.#nowMs));
  }

  #drop(peer, reason) {
    this.#close(peer);
    this.#effects.push(["DropPeer", peer, reason]);
  }

  #close(peer) {
    this.flood.close(peer);
    this.sync.close(peer);
    this.snapshots.peerLeft(peer);
    this.recounts.forget(peer);
  }

  #horizon() {
    return this.sync.isLive ? this.clock.horizon(this.state.highest(), this.#nowMs, this.sync.stepTold) : Infinity;
  }

  #pulledHorizon(step) {
    return this.sync.isLive ? this.clock.pulledHorizon(this.state.highest(), this.#nowMs, step) : Infinity;
  }

  #takeRecords(peer, { request, data }) {
    const records = splitRecords(this.#run.manifest, data);
    this.sync.countRecords(peer, request, records, this.#nowMs);
    const frontier = this.#frontier();
    const horizon = this.sync.horizonOf(peer, request, this.#horizon());
    const isNews = this.sync.isLive || request === 0; // SPEC 8.3
    const fresh = [];
    try {
      for (const record of records) if (this.#admit(record, peer, frontier, horizon)) fresh.push(record);
    } finally {
      this.#keep(fresh, peer, isNews); // SPEC 8.5: those before a bad one, too
    }
  }

  /** Whether the record is new. */
  #admit(record, peer, frontier, horizon) {
    const first = this.#firstOfSlot(record);
    const { verdict, reason, envelope } = this.#known(record) ?? this.state.add(record, horizon);
    if (verdict === "reject") throw new Rejected(reason);
    if (verdict === "ignore") {
      this.#ignore(reason);
      this.flood.isKnownTo(peer, record);
      return false;
    }
    if (verdict === "voids") {
      this.flood.push(first, null); // SPEC 8.3: for all
      return true;
    }
    const isFurther = envelope.step === this.state.standing().get(envelope.author.toString("hex"));
    if (isFurther && (this.sync.isLive || envelope.step >= frontier)) {
      this.clock.hear(envelope.author.toString("hex"), envelope.scalars, this.#nowMs); // SPEC 9.1.3
    }
    return true;
  }

  /** SPEC 7.1: the signature of what is held is not checked again. */
  #known(record) {
    return this.state.holds(record) ? { verdict: "ignore", reason: "ALREADY_HELD" } : null;
  }

  #firstOfSlot(record) {
    return this.state.ledger.slot(record.subarray(0, 32), record.readUInt32BE(32))?.records[0];
  }

  /** SPEC 8.3: stored first, then queued. source: null for an own record. */
  #keep(fresh, source, isNews = true) {
    if (fresh.length === 0) return;
    this.#effects.push(["StoreRecords", fresh, source === null]);
    if (source !== null) this.recounts.broughtNews(source);
    if (isNews) for (const record of fresh) this.flood.push(record, source);
  }

  #takeHead(peer, head) {
    const isSame = head.root.equals(this.state.root()) && !head.state_digest.equals(NOT_SUMMED);
    if (isSame && !head.state_digest.equals(this.state.digest())) {
      this.recounts.claimed(peer, this.#nowMs); // SPEC 7.6
      return;
    }
    const author = this.snapshots.isOwnFirst(Number(head.updates)) ? this.#author : null;
    const options = { horizon: this.#pulledHorizon(head.step), author };
    this.#send(this.sync.receiveHead(peer, head, this.#nowMs, options));
  }

  #takeAttestations(peer, attestations) {
    const { sends, ignored } = this.snapshots.take(peer, attestations);
    ignored.forEach((reason) => this.#ignore(reason));
    this.#send(sends);
  }

  // --- statements (SPEC 7.7)

  #takeStatements(peer, message) {
    const { request, statements } = message.fields;
    this.#takeIn(statements, peer, this.sync.isLive || request === 0);
    this.#send(this.sync.receive(peer, message, this.#nowMs));
  }

  #takeSubmitted(statement) {
    try {
      this.#takeIn([statement], null, true);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error; // it came from this machine: nobody is to be dropped
    }
  }

  #takeIn(statements, source, isNews) {
    const fresh = [];
    try {
      for (const data of statements) {
        const { verdict, reason } = this.state.state(data);
        if (verdict === "reject") throw new Rejected(reason);
        if (verdict === "ignore") this.#ignore(reason);
        else fresh.push(data);
      }
    } finally {
      this.#keepStatements(fresh, source, isNews);
    }
  }

  #keepStatements(fresh, source, isNews) {
    if (fresh.length === 0) return;
    this.#effects.push(["StoreStatements", fresh]);
    this.clock.forgetOthers(this.state.standing());
    this.flood.keep((record) => this.state.counts(record));
    if (!isNews) return;
    const told = fresh.flatMap((data) => this.state.roster.newsWith(data));
    const size = this.#limits.STATEMENTS_PER_MESSAGE_MAX;
    const others = this.sync.peers.filter((peer) => peer !== source);
    for (let start = 0; start < told.length; start += size) {
      const message = encodeMessage("Statements", 0, told.slice(start, start + size), true);
      this.#send(others.map((peer) => [peer, message]));
    }
  }

  // --- own steps

  /** SPEC 9.2.3, 9.2.4, for the next step. */
  #maySign() {
    if (!this.#mayContribute() || this.clock.isFinished || this.#firstTickMs === null) return false;
    return this.#knowsOwnRounds();
  }

  /** SPEC 9.2.3. */
  #knowsOwnRounds() {
    const { isLive, metMs } = this.sync;
    if (isLive || this.snapshots.maySign() || (metMs === null && !this.#config.expects_peers)) return true;
    return this.#isUnanswered();
  }

  /** Whether the neighbours have been silent for 30 s (9.2.3, 9.6). */
  #isUnanswered() {
    const { metMs, answeredMs } = this.sync;
    const silentMs = this.#nowMs - Math.max(this.#firstTickMs, metMs ?? 0, answeredMs);
    return silentMs >= this.#limits.FIRST_SYNC_TIMEOUT_MS;
  }

  /** Whether it makes a next update that would count: not a relay, not paused, admitted, not excluded, with a place in the author table. */
  #mayContribute() {
    return this.#config.is_training && this.#isSwitchedOn && this.#wouldCount(this.clock.nextStep);
  }

  #wouldCount(step) {
    return this.state.ledger.hasRoomFor(this.#author) && step < this.state.countsUntil(this.#author);
  }

  #startStepIfDue() {
    if (this.#estimating !== null || !this.#isWorkerFree || !this.#maySign()) return;
    const highest = this.state.standing();
    this.clock.resumeAfter(this.state.highestOf(this.#author));
    const until = this.state.countsUntil(this.#author);
    const step = this.clock.tryStart(highest, this.#nowMs, this.sync.nearestWork === 0, until);
    if (step === null) return;
    this.#estimating = step;
    this.#isWorkerFree = false;
    const seed = seedOf(this.#run.runId, this.#author, step);
    this.#effects.push(["ReserveStep", step], ["StartEstimate", step, seed, this.clock.affordable.chosen]); // SPEC 9.2.1
  }

  #publish(step, scalars) {
    if (step !== this.#estimating) return;
    this.#finishStep(true, true);
    const isTaken = this.state.highestOf(this.#author) >= step; // SPEC 9.2.4
    if (isTaken || !this.#wouldCount(step) || !this.#knowsOwnRounds()) return;
    const record = makeRecord(this.#run, this.#secretSeed, step, scalars);
    this.state.add(record);
    this.#keep([record], null);
  }

  #passOver(step, isWorkerFree) {
    if (step === this.#estimating) this.#finishStep(isWorkerFree, false);
  }

  #finishStep(isWorkerFree, isMeasured) {
    this.#estimating = null;
    this.#isWorkerFree = isWorkerFree;
    this.clock.done(this.#nowMs, isMeasured);
  }

  // --- time

  #tick() {
    this.#firstTickMs ??= this.#nowMs;
    const liar = this.recounts.tick(this.#nowMs);
    if (liar !== null) this.#drop(liar, null);
    for (const peer of this.sync.peersDueForHead(this.#nowMs)) this.#sendHead(peer);
    this.#send(this.sync.tick(this.#nowMs));
    const moved = (this.#limits.STEPS_AHEAD_MAX / 2) * this.#run.manifest.method.local_steps;
    for (const [peer, head, step] of this.sync.cutShort()) {
      if (this.#pulledHorizon(head.step) < step + moved) continue;
      this.sync.goOn(peer);
      this.#takeHead(peer, head);
    }
    this.#effects.push(...this.snapshots.tick(this.#frontier(), this.#nowMs));
  }

  /** SPEC 9.6. */
  #lookAtEnd(isHead) {
    const isSilent = this.isFinished && this.#isUnanswered();
    const isCatchingUp = this.sync.peers.length > 0 && !this.sync.isLive && !isSilent;
    const hasSteps = this.#estimating !== null || (this.#mayContribute() && !this.clock.isFinished);
    if (hasSteps || isCatchingUp) this.end.isAtWork();
    else if (isHead || this.isFinished) {
      const seen = {
        agreement: this.sync.agreement(),
        peers: this.sync.peers.length,
        isAwaiting: this.clock.isAwaiting(this.state.standing(), this.#nowMs),
        isFinished: this.isFinished,
        hadNeighbour: this.#config.expects_peers || this.sync.metMs !== null,
      };
      this.end.look(seen, this.#nowMs);
    }
    if (this.end.mustTell(this.#nowMs)) for (const peer of this.sync.peers) this.#sendHead(peer);
  }
}
