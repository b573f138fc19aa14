// The end of a run (SPEC 9.6): the work distance that a node tells, and whether the run is over for it.

export class EndOfRun {
  #limits;
  #told = 0;
  #toldMs = 0;
  #finishedMs = null; // since when it has nothing to do itself
  workDistance = 0;
  isOver = false;
  isGivenUp = false; // it has waited for the others for long enough

  constructor(limits) {
    this.#limits = limits;
  }

  /** The node has work itself. */
  isAtWork() {
    [this.workDistance, this.isOver, this.isGivenUp, this.#finishedMs] = [0, false, false, null];
  }

  /** It has none. agreement: of the Synchroniser; isAwaiting: 9.6.2; hadNeighbour: it had or expected one. */
  look({ agreement, peers, isAwaiting, isFinished, hadNeighbour }, nowMs) {
    const { equal, differing, nearest } = agreement;
    const isHeld = isAwaiting || differing > 0;
    const most = this.#limits.WORK_DISTANCE_MAX;
    if (nearest !== null) {
      const distance = Math.min(most, nearest + 1);
      this.workDistance = isHeld ? Math.min(distance, Math.max(1, this.workDistance)) : distance;
    }
    const isFar = peers === 0 || this.workDistance === most;
    this.isOver = isFinished && !isHeld && isFar && (equal > 0 || !hadNeighbour);
    if (this.#finishedMs === null || !isFinished) this.#finishedMs = nowMs;
    const limitMs = peers > 0 ? this.#limits.END_WAIT_MS_MAX : this.#limits.FIRST_SYNC_TIMEOUT_MS;
    this.isGivenUp = isFinished && nowMs - this.#finishedMs >= limitMs;
  }

  /** Whether all neighbours are to be told now; true counts as told. */
  mustTell(nowMs) {
    if (this.#told === this.workDistance || nowMs - this.#toldMs < this.#limits.WORK_TOLD_MS) return false;
    [this.#told, this.#toldMs] = [this.workDistance, nowMs];
    return true;
  }
}
