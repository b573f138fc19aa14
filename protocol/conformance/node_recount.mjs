// Equal roots, different states (SPEC 7.6). This node's sums are exact and never forgotten, so a recount finds them so:
// what is left is when one is made, and what becomes of the neighbour that made it necessary.

export class Recounts {
  #limits;
  #useful = new Set(); // neighbours that have brought a record that was new
  #claim = null; // {peer, isWhole} of the recount under way; peer null once it has gone
  #restUntilMs = { true: 0, false: 0 };

  constructor(limits) {
    this.#limits = limits;
  }

  broughtNews(peer) {
    this.#useful.add(peer);
  }

  forget(peer) {
    this.#useful.delete(peer);
    if (this.#claim?.peer === peer) this.#claim.peer = null;
  }

  /** A head came with the own root and another state. */
  claimed(peer, nowMs) {
    const isWhole = this.#useful.has(peer);
    if (nowMs < this.#restUntilMs[isWhole] || (this.#claim !== null && this.#claim.isWhole >= isWhole)) return;
    this.#claim = { peer, isWhole };
  }

  /** The neighbour to be dropped, or null. */
  tick(nowMs) {
    if (this.#claim === null) return null;
    const { peer, isWhole } = this.#claim;
    this.#claim = null;
    this.#restUntilMs[isWhole] = nowMs + this.#limits.RECOUNT_REST_MS;
    return isWhole ? peer : null;
  }
}
