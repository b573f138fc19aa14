// How many of a round's directions a node measures (SPEC 9.1.6). Authors are given as hex.

import { lowerMedian } from "./node_limits.mjs";
import { directionsMeasured } from "./scalars.mjs";

const ROUNDS_KEPT = 5;

export class AffordableDirections {
  #method;
  #measured = new Map();
  #rounds = []; // what its own last ones took, or would have taken with all directions, in ms

  constructor(method) {
    this.#method = method;
    this.chosen = method.directions;
  }

  /** The newest update of an author. */
  hear(author, scalars) {
    this.#measured.set(author, directionsMeasured(this.#method, scalars));
  }

  forget(author) {
    this.#measured.delete(author);
  }

  /** The round under way was measured. */
  measured(tookMs) {
    this.#rounds = [...this.#rounds, this.#whole(tookMs, this.chosen)].slice(-ROUNDS_KEPT);
  }

  /** Before a round begins; `active`: intervals by author of those who are. */
  choose(active) {
    const { directions, shares } = this.#method;
    const theirs = active.map(([author, intervalMs]) => this.#whole(intervalMs, this.#measured.get(author)));
    this.chosen = directions;
    if (theirs.length === 0 || this.#rounds.length === 0) return;
    const [pace, own] = [lowerMedian(theirs), lowerMedian(this.#rounds)];
    if (4 * own <= 5 * pace) return;
    this.chosen = Math.max(1, Math.floor((pace * (directions / shares)) / own)) * shares;
  }

  #whole(ms, measured) {
    return Math.floor((ms * this.#method.directions) / measured);
  }
}
