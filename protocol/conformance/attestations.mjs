// Which attestations of snapshots a node keeps, and on which file enough authors agree (SPEC 9.5).

import { checkAttestationForm, checkAttestationSigned } from "./snapshots.mjs";
import { Rejected } from "./verdicts.mjs";

const ATTESTATIONS_MAX = 1024;
const PER_TELLER_MAX = 256;

export class AttestationTable {
  #run;
  #ledger;
  #most;
  #mostByTeller;
  #newest = new Map(); // hex of the author -> attestation
  #told = new Map(); // teller -> the same, of authors who are not known yet to contribute

  constructor(run, ledger, { most = ATTESTATIONS_MAX, mostByTeller = PER_TELLER_MAX }) {
    this.#run = run;
    this.#ledger = ledger;
    this.#most = most;
    this.#mostByTeller = mostByTeller;
  }

  /** teller: null where the node is live. {verdict: "counts" | "ignore" | "reject", reason}. */
  add(data, teller) {
    try {
      const attestation = checkAttestationForm(this.#run, data);
      const reason = this.#ignoreReason(attestation, teller);
      if (reason !== null) return { verdict: "ignore", reason };
      checkAttestationSigned(this.#run, attestation);
      this.#tableOf(teller).set(attestation.author.toString("hex"), attestation);
      return { verdict: "counts", reason: null };
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      return { verdict: "reject", reason: error.reason };
    }
  }

  #ignoreReason({ author, step }, teller) {
    if (teller === null && !this.#isContributing(author)) return "NOT_ADMITTED";
    const name = author.toString("hex");
    const tables = teller === null ? [this.#newest, ...this.#told.values()] : [this.#newest, this.#tableOf(teller)];
    if (tables.some((table) => table.has(name) && table.get(name).step >= step)) return "ALREADY_HELD";
    return this.#tableOf(teller).has(name) || this.#hasRoom(teller) ? null : "ATTESTATIONS_FULL";
  }

  #tableOf(teller) {
    if (teller === null) return this.#newest;
    if (!this.#told.has(teller)) this.#told.set(teller, new Map());
    return this.#told.get(teller);
  }

  #hasRoom(teller) {
    if (teller !== null) return this.#tableOf(teller).size < this.#mostByTeller;
    if (this.#newest.size >= this.#most) {
      for (const [name, { author }] of [...this.#newest]) if (!this.#isTrusted(author)) this.#newest.delete(name);
    }
    return this.#newest.size < this.#most;
  }

  /** A neighbour has gone: what it told goes, too, but for what contributors attest. */
  leave(teller) {
    const told = this.#told.get(teller) ?? new Map();
    this.#told.delete(teller);
    for (const [name, attestation] of told) {
      if (this.#ignoreReason(attestation, null) === null) this.#newest.set(name, attestation);
    }
  }

  /** The newest of each author who is admitted and not excluded. */
  trusted() {
    const newest = new Map();
    for (const [name, each] of [this.#newest, ...this.#told.values()].flatMap((table) => [...table])) {
      if ((newest.get(name)?.step ?? 0) < each.step) newest.set(name, each);
    }
    return [...newest.values()].filter(({ author }) => this.#isTrusted(author));
  }

  /** The attestations of the file that may be used; none where there is no such file. */
  agreed(authorsMin) {
    const trusted = this.trusted();
    const isEnough = ({ claim, step }) => {
      const agreeing = trusted.filter((each) => each.claim === claim).length;
      return agreeing >= authorsMin && 2 * agreeing > trusted.filter((each) => each.step >= step).length;
    };
    const enough = trusted.filter(isEnough).sort((a, b) => b.step - a.step);
    return enough.filter(({ claim }) => claim === enough[0].claim);
  }

  #isContributing(author) {
    return this.#isTrusted(author) && this.#ledger.holdsAnyOf(author);
  }

  #isTrusted(author) {
    return this.#ledger.roster.isAdmitted(author) && this.#ledger.roster.excludedFrom(author) === Infinity;
  }
}
