// A node's part in snapshots (SPEC 9.5): it makes and attests them, and as a joiner uses one until its replay is done.

import { createHash } from "node:crypto";
import { AttestationTable } from "./attestations.mjs";
import { SPAN_STEPS } from "./digests.mjs";
import { judge, makeAttestation, readSnapshot, takeSnapshot } from "./snapshots.mjs";
import { Rejected } from "./verdicts.mjs";
import { encodeMessage } from "./wire.mjs";

const RETRY_MS = 2000;

const sha256Of = (data) => createHash("sha256").update(data).digest();

export class Snapshots {
  #state;
  #key;
  #config;
  #sync;
  #limits;
  #table;
  #asked = null; // the hash of the file that is being fetched
  #dueMs = new Map(); // hash -> when a file that failed may be asked for again
  #outcome = "none";
  #used = null; // the snapshot in use
  #excluded = new Map(); // author -> first excluded step, when it was looked at last
  #signedBy = [];
  #madeStep = 0;
  #missingSinceMs = null;
  #held = -1; // slots below its step when something last came
  #lookMs = 0;

  /** key: {secretSeed, author}. */
  constructor(state, key, config, sync, limits) {
    this.#state = state;
    this.#key = key;
    this.#config = config;
    this.#sync = sync;
    this.#limits = limits;
    const { ATTESTATIONS_MAX: most, ATTESTATIONS_PER_TELLER_MAX: mostByTeller } = limits;
    this.#table = new AttestationTable(state.run, state.ledger, { most, mostByTeller });
  }

  get #mayUse() {
    const { is_training: isTraining, snapshot } = this.#config;
    const isOpen = this.#state.run.manifest.admission.kind === "open";
    return isTraining && (snapshot === "always" || (snapshot === "auto" && !isOpen));
  }

  peerJoined(peer) {
    return this.#mayUse && !this.#sync.isLive ? [[peer, encodeMessage("AttestationsRequest")]] : [];
  }

  peerLeft(peer) {
    this.#table.leave(peer);
  }

  /** The answer to a request: the newest first. */
  page() {
    const newest = this.#table.trusted().sort((a, b) => b.step - a.step || Buffer.compare(a.author, b.author));
    return attestationsMessage(newest.slice(0, this.#limits.ATTESTATIONS_PER_MESSAGE_MAX).map(({ data }) => data));
  }

  /** Takes attestations in: {sends, ignored}. Rejects. */
  take(peer, attestations) {
    const [fresh, ignored] = [[], []];
    for (const data of attestations) {
      const { verdict, reason } = this.#table.add(data, this.#sync.isLive ? null : peer);
      if (verdict === "reject") throw new Rejected(reason);
      if (verdict === "ignore") ignored.push(reason);
      else fresh.push(data);
    }
    const others = this.#sync.isLive ? this.#sync.peers.filter((each) => each !== peer) : [];
    return { sends: told(fresh, others), ignored };
  }

  /** Effects. */
  tick(frontier, nowMs) {
    const effects = this.#isCutSince() ? this.#end("unproved") : [];
    if (!this.#sync.isLive) return [...effects, ...this.#fetchIfWanted(nowMs)];
    return [...effects, ...this.#makeIfDue(frontier), ...this.#prove(nowMs)];
  }

  // --- making

  #makeIfDue(frontier) {
    const { run } = this.#state;
    const behind = frontier - this.#limits.STEPS_AHEAD_MAX * run.manifest.method.local_steps;
    const step = behind - (behind % SPAN_STEPS);
    if (step <= this.#madeStep) return [];
    this.#madeStep = step;
    const data = takeSnapshot(run, this.#state.ledger, step);
    if (data.length > this.#limits.SNAPSHOT_BYTES_MAX) return [];
    const sha256 = sha256Of(data);
    const claim = { step, length: data.length, sha256 };
    return [["StoreSnapshot", step, sha256.toString("hex"), data], ...this.#attest(claim)];
  }

  #attest(claim) {
    if (!this.#config.is_training || this.#state.highestOf(this.#key.author) < 0) return [];
    const own = makeAttestation(this.#state.run, this.#key.secretSeed, claim);
    const sends = this.#table.add(own, null).verdict === "counts" ? told([own], this.#sync.peers) : [];
    return sends.map(([peer, message]) => ["SendMessage", peer, message]);
  }

  // --- use

  /** Whether the node would use one now; updates: what a neighbour tells that it holds. */
  isSought(updates = 0) {
    if (this.#sync.isLive || !this.#mayUse || this.#outcome !== "none") return false;
    const behind = Math.max(updates, this.#sync.updatesTold) - this.#state.ledger.updates;
    return this.#config.snapshot === "always" || behind > this.#limits.SNAPSHOT_BEHIND_MIN;
  }

  /** Whether a session begins with the own key, and then asks for the newest spans. */
  isOwnFirst(updates) {
    return (this.#used !== null && !this.#sync.isLive) || this.isSought(updates);
  }

  #wanted() {
    const agreed = this.isSought() ? this.#table.agreed(this.#config.snapshot_authors_min) : [];
    return agreed.sort((a, b) => Buffer.compare(a.author, b.author));
  }

  #fetchIfWanted(nowMs) {
    const [first] = this.#wanted();
    const sha256 = first?.sha256.toString("hex");
    if (first === undefined || this.#asked !== null || nowMs < (this.#dueMs.get(sha256) ?? 0)) return [];
    this.#asked = sha256;
    return [["FetchSnapshot", sha256, first.length]];
  }

  fetchFailed(sha256, nowMs) {
    if (sha256 !== this.#asked) return;
    this.#asked = null;
    this.#dueMs.set(sha256, nowMs + RETRY_MS);
  }

  /** A file has come. Effects. */
  arrived(data) {
    this.#asked = null;
    const agreed = this.#wanted();
    if (agreed.length === 0 || !agreed[0].sha256.equals(sha256Of(data))) return [];
    this.#signedBy = agreed;
    const snapshot = this.#read(data);
    if (snapshot === null || snapshot.step !== agreed[0].step) return this.#become("useless");
    this.#excluded = this.#state.roster.exclusions();
    this.#used = snapshot;
    return this.#become("used");
  }

  #read(data) {
    try {
      return readSnapshot(this.#state.run, data);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      return null;
    }
  }

  /** SPEC 9.2.3: whether the node may sign before it is live. */
  maySign() {
    return this.#used !== null && this.#sync.hasOwn && this.#sync.hasComparedFrom(this.#used.step);
  }

  // --- proof

  #prove(nowMs) {
    if (this.#used === null || nowMs < this.#lookMs) return [];
    this.#lookMs = nowMs + this.#limits.HEAD_INTERVAL_MS;
    const verdict = judge(this.#state.run, this.#used, this.#state.ledger);
    if (verdict === "missing" && this.#mayYetCome(nowMs)) return [];
    if (verdict === "unequal") return [["Halt", this.#signedBy.map(({ data }) => data)]];
    return this.#end(verdict === "equal" ? "proved" : "unproved");
  }

  #isCutSince() {
    if (this.#used === null) return false;
    const before = this.#excluded;
    this.#excluded = this.#state.roster.exclusions();
    const isNew = ([author, from]) => before.get(author) !== from;
    return [...this.#excluded].filter(isNew).some(([, from]) => from < this.#used.step);
  }

  #mayYetCome(nowMs) {
    const held = this.#state.ledger.slotsBelow(this.#used.step).length;
    if (held !== this.#held) this.#missingSinceMs = nowMs;
    this.#held = held;
    return nowMs - this.#missingSinceMs < this.#limits.SNAPSHOT_MISSING_MS;
  }

  #end(outcome) {
    this.#used = null;
    return this.#become(outcome);
  }

  #become(outcome) {
    this.#outcome = outcome;
    return [["ReportSnapshot", outcome, this.#signedBy[0].step, this.#signedBy.map(({ author }) => author)]];
  }
}

function told(attestations, peers) {
  return attestations.length === 0 ? [] : peers.map((peer) => [peer, attestationsMessage(attestations)]);
}

function attestationsMessage(attestations) {
  return encodeMessage("Attestations", attestations);
}
