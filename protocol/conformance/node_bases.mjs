// Files that a node asks for, one at a time, and the renewed bases among them (SPEC 4.6, 9.2.5).

const BASIS_RETRY_MS = 5000;

export class Fetches {
  #retryMs;
  #asked = null;
  #dueMs = new Map(); // SHA-256 -> when one that failed may be asked for again

  constructor(retryMs) {
    this.#retryMs = retryMs;
  }

  /** The first of these to ask for now, or null. */
  start(wanted, nowMs) {
    if (this.#asked !== null) return null;
    this.#asked = wanted.find((sha256) => nowMs >= (this.#dueMs.get(sha256) ?? 0)) ?? null;
    return this.#asked;
  }

  arrived() {
    this.#asked = null;
  }

  failed(sha256, nowMs, isLasting) {
    if (sha256 !== this.#asked) return;
    this.#asked = null;
    this.#dueMs.set(sha256, isLasting ? Infinity : nowMs + this.#retryMs);
  }
}

export class BasisFiles {
  #roster;
  #here = new Set();
  #fetches = new Fetches(BASIS_RETRY_MS);

  constructor(roster) {
    this.#roster = roster;
  }

  /** Whether all that the weights of an epoch need is here. */
  isHere(epoch) {
    return this.#roster.renewals().every(([first, sha256]) => first > epoch || this.#here.has(sha256));
  }

  arrived(sha256) {
    this.#here.add(sha256);
    this.#fetches.arrived();
  }

  failed(sha256, nowMs, isLasting) {
    this.#fetches.failed(sha256, nowMs, isLasting);
  }

  /** Effects. */
  tick(nowMs) {
    const missing = this.#roster.renewals().filter(([, sha256]) => !this.#here.has(sha256));
    const chosen = this.#fetches.start(missing.map(([, sha256]) => sha256), nowMs);
    if (chosen === null) return [];
    return [["FetchBasis", chosen, missing.find(([, sha256]) => sha256 === chosen)[0]]];
  }
}
