// How many of a round's directions a node measures (SPEC 9.1.6). Authors are given as hex.

import { lowerMedian } from "./node_limits.mjs";
import { directionsMeasured } from "./scalars.mjs";

export class AffordableDirections {
  #method;
  #measured = new Map();
  #tookMs = null; // its last round, until it was looked at
  #wasLate = false;

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
    this.#tookMs = tookMs;
  }

  /** Before a round begins; `active`: intervals by author of those who are. */
  choose(active) {
    const { directions } = this.#method;
    const theirs = active.map(([author, intervalMs]) => Math.floor((intervalMs * directions) / this.#measured.get(author)));
    const tookMs = this.#tookMs;
    this.#tookMs = null;
    if (tookMs === null) return;
    const own = Math.floor((tookMs * directions) / this.chosen);
    this.chosen = this.#fitting(lowerMedian([...theirs, own]), tookMs) * this.#method.shares;
  }

  /** Blocks of the next round. */
  #fitting(pace, took) {
    const { directions, shares } = this.#method;
    const blocks = this.chosen / shares;
    const inProportion = Math.floor((pace * blocks) / Math.max(1, took));
    const isLate = 4 * took > 5 * pace;
    const wasLate = this.#wasLate;
    this.#wasLate = isLate;
    if (isLate && (wasLate || took > 4 * pace || blocks < directions / shares)) return Math.max(1, inProportion);
    if (took > pace) return blocks;
    return Math.min(directions / shares, Math.max(blocks + 1, inProportion));
  }
}
