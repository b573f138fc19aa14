// Which authors attest which snapshot (SPEC 9.5.5 to 9.5.9): the newest attestation of each, and what enough agree on.

import { encodeMessage } from "./wire.mjs";
import { checkAttested, parseAttestation } from "./snapshots.mjs";

export class Attestations {
  #state;
  #limits;
  #newest = new Map(); // hex of an author of whom something counts -> attestation
  #told = new Map(); // peer -> the same, of authors who are not known yet

  constructor(state, limits) {
    this.#state = state;
    this.#limits = limits;
  }

  /** teller: null on a live node. Rejects. {attestation} or {reason} why it is ignored. */
  add(data, teller) {
    const author = data.subarray(0, 32);
    const name = author.toString("hex");
    const attestation = parseAttestation(this.#state.run, data);
    if (teller === null && !this.#isContributing(author)) return { reason: "NOT_ADMITTED" };
    if (teller !== null && !this.#told.has(teller)) this.#told.set(teller, new Map());
    const table = teller === null ? this.#newest : this.#told.get(teller);
    const held = teller === null ? this.#tables() : [this.#newest, table];
    if (held.some((each) => (each.get(name)?.step ?? -1) >= attestation.step)) return { reason: "ALREADY_HELD" };
    if (!table.has(name) && !this.#hasRoom(teller)) return { reason: "ATTESTATIONS_FULL" };
    checkAttested(this.#state.run, attestation);
    table.set(name, attestation);
    return { attestation };
  }

  /** A neighbour has gone: of what it told that stays whose authors contribute. */
  forget(teller) {
    const told = this.#told.get(teller) ?? new Map();
    this.#told.delete(teller);
    for (const [name, attestation] of told) {
      const isNews = this.#tables().every((each) => (each.get(name)?.step ?? -1) < attestation.step);
      const hasPlace = this.#newest.has(name) || this.#hasRoom(null);
      if (isNews && this.#isContributing(attestation.author) && hasPlace) this.#newest.set(name, attestation);
    }
  }

  /** The message that answers a request. */
  page() {
    const newest = this.#trusted().sort((a, b) => b.step - a.step || Buffer.compare(a.author, b.author));
    const shown = newest.slice(0, this.#limits.ATTESTATIONS_PER_MESSAGE_MAX);
    return encodeMessage("Attestations", shown.map(({ data }) => data));
  }

  /** Attestations, by author, of the newest file that enough authors attest; empty when there is none. */
  agreed(least) {
    const trusted = this.#trusted();
    const byClaim = new Map();
    for (const each of trusted) byClaim.set(claimOf(each), [...(byClaim.get(claimOf(each)) ?? []), each]);
    for (const claim of [...byClaim.keys()].sort().reverse()) {
      const agreeing = byClaim.get(claim);
      const asked = trusted.filter(({ step }) => step >= agreeing[0].step).length;
      const isEnough = agreeing.length >= least && 2 * agreeing.length > asked;
      if (isEnough) return agreeing.sort((a, b) => Buffer.compare(a.author, b.author));
    }
    return [];
  }

  #tables() {
    return [this.#newest, ...this.#told.values()];
  }

  #hasRoom(teller) {
    if (teller !== null) return this.#told.get(teller).size < this.#limits.ATTESTATIONS_PER_TELLER_MAX;
    if (this.#newest.size >= this.#limits.ATTESTATIONS_MAX) {
      this.#newest = new Map([...this.#newest].filter(([, { author }]) => this.#isTrusted(author)));
    }
    return this.#newest.size < this.#limits.ATTESTATIONS_MAX;
  }

  #trusted() {
    const newest = new Map();
    for (const [name, each] of this.#tables().flatMap((table) => [...table])) {
      if ((newest.get(name)?.step ?? -1) < each.step) newest.set(name, each);
    }
    return [...newest.values()].filter(({ author }) => this.#isTrusted(author));
  }

  #isContributing(author) {
    return this.#isTrusted(author) && this.#state.highestOf(author) >= 0;
  }

  #isTrusted(author) {
    return this.#state.roster.isAdmitted(author) && this.#state.roster.excludedFrom(author) === Infinity;
  }
}

/** Step, length and hash as one text that sorts like them. */
function claimOf({ data }) {
  return data.toString("hex", 32, 72);
}
