// The step clock (SPEC 9.1), the horizon (7.3.3) and whom the end of a run awaits (9.6.2). Authors are given as hex.

import { AffordableDirections } from "./node_affordable.mjs";
import { clamp, lowerMedian, median } from "./node_limits.mjs";

const PACES_KEPT = 16;
const HEARD_MS = 60000;

export class StepClock {
  #own;
  #limits;
  #round;
  #steps;
  #staleness;
  #heardMs = new Map();
  #metMs = new Map(); // heard, or found at work at the beginning
  #intervalMs = new Map();
  #paces = [];
  #doneMs = null; // when the step before was done
  #startedMs = null; // when it was started
  #alone = null; // [when, step] since it has had a neighbour with work, and no author at work
  #halfMs = null; // since when half of the active authors have what the next step needs
  nextStep = 0;

  constructor({ manifest }, own, limits) {
    this.#own = own;
    this.#limits = limits;
    this.#round = manifest.method.local_steps;
    this.#steps = manifest.steps;
    this.#staleness = manifest.staleness;
    this.affordable = new AffordableDirections(manifest.method);
  }

  get isFinished() {
    return this.nextStep >= this.#steps;
  }

  /** A record has raised the author's highest step. */
  hear(author, scalars, nowMs) {
    if (author === this.#own) return;
    if (this.#heardMs.has(author)) {
      const interval = nowMs - this.#heardMs.get(author);
      const smoothed = this.#intervalMs.get(author) ?? interval;
      this.#intervalMs.set(author, Math.floor((3 * smoothed + interval) / 4));
    }
    this.#heardMs.set(author, nowMs);
    this.#metMs.set(author, nowMs);
    this.affordable.hear(author, scalars);
  }

  /** Once, when it has caught up: `told` is the lower median of the neighbours' Head.step. */
  meet(highest, nowMs, told) {
    const least = told - this.#limits.STEPS_AHEAD_MAX * this.#round;
    for (const [author, step] of this.#others(highest)) if (step >= least) this.#metMs.set(author, nowMs);
  }

  /** Nothing is held any more of authors who are not in `highest`. */
  forgetOthers(highest) {
    for (const author of [...this.#metMs.keys()].filter((each) => !highest.has(each))) {
      this.#heardMs.delete(author);
      this.#metMs.delete(author);
      this.#intervalMs.delete(author);
      this.affordable.forget(author);
    }
  }

  /** SPEC 9.2.1, 9.2.4: never this step, nor one before it. */
  resumeAfter(step) {
    if (step >= 0) this.nextStep = Math.max(this.nextStep, step + this.#round);
  }

  done(nowMs, isMeasured) {
    if (isMeasured) this.affordable.measured(nowMs - this.#startedMs);
    this.nextStep += this.#round;
    this.#doneMs = nowMs;
  }

  #others(highest) {
    return [...highest].filter(([author]) => author !== this.#own);
  }

  #heardSteps(highest, nowMs) {
    const isHeard = ([author]) => this.#heardMs.has(author) && nowMs - this.#heardMs.get(author) <= HEARD_MS;
    return this.#others(highest).filter(isHeard).map(([, step]) => step);
  }

  #roundOf(step) {
    return step - (((step % this.#round) + this.#round) % this.#round);
  }

  /** Of those heard of lately; of all met, if some are, but not most. */
  #recentSteps(highest, nowMs) {
    const heard = this.#heardSteps(highest, nowMs);
    const isMet = ([author]) => this.#metMs.has(author) && nowMs - this.#metMs.get(author) <= this.#metPatienceMs(author);
    const met = this.#others(highest).filter(isMet).map(([, step]) => step);
    return heard.length > 0 && 2 * heard.length <= met.length ? met : heard;
  }

  #metPatienceMs(author) {
    const wanted = this.#limits.AT_WORK_INTERVALS * (this.#intervalMs.get(author) ?? 0);
    return clamp(wanted, this.#limits.MET_MS_MIN, this.#limits.MET_MS_MAX);
  }

  /** The lower median of these steps; without any, of all other authors'. */
  #middle(steps, highest) {
    const those = steps.length > 0 ? steps : this.#others(highest).map(([, step]) => step);
    return those.length > 0 ? this.#roundOf(lowerMedian(those)) : 0;
  }

  /** The same; without any, the highest step of any other author, or -1. */
  #furthest(steps, highest) {
    if (steps.length > 0) return this.#roundOf(lowerMedian(steps));
    return Math.max(-1, ...this.#others(highest).map(([, step]) => this.#roundOf(step)));
  }

  /** SPEC 9.1.3. */
  frontier(highest, nowMs) {
    return this.#middle(this.#recentSteps(highest, nowMs), highest);
  }

  /** SPEC 7.3.3 of what is pushed: `told` is the lower median of the neighbours' Head.step. */
  horizon(highest, nowMs, told) {
    const ahead = this.#limits.STEPS_AHEAD_MAX * this.#round;
    return Math.max(this.#middle(this.#heardSteps(highest, nowMs), highest), this.nextStep, told) + ahead;
  }

  /** SPEC 7.3.3 of what answers a pull: `told` is the Head.step of that neighbour. */
  pulledHorizon(highest, nowMs, told) {
    return this.horizon(highest, nowMs, Math.max(told, this.#furthest(this.#heardSteps(highest, nowMs), highest)));
  }

  /** SPEC 9.1.5, of a node whose updates would not count. */
  isRunOver(highest, nowMs) {
    return this.#furthest(this.#recentSteps(highest, nowMs), highest) >= this.#steps - this.#round;
  }

  /** The step to start now, or null; none from `until` on counts. */
  tryStart(highest, nowMs, hasCompany, until) {
    this.nextStep = Math.max(this.nextStep, this.frontier(highest, nowMs)); // SPEC 9.1.3
    if (this.isFinished || this.nextStep >= until) return null;
    this.#doneMs ??= nowMs;
    const { behind, active } = this.#active(highest);
    const isHalfThere = 2 * (active.length - behind + 1) >= active.length + 1; // this node is there itself
    if (isHalfThere) this.#halfMs ??= nowMs;
    const limitMs = Math.min(isHalfThere ? this.#graceMs() : this.#waitMs(), this.#limits.STEP_WAIT_MS_MAX);
    if (behind > 0 && nowMs < this.#doneMs + limitMs) return null;
    if (this.#isFarAhead(highest, nowMs, hasCompany)) return null;
    if (this.#halfMs !== null && this.#startedMs !== null) {
      this.#paces = [...this.#paces, this.#halfMs - this.#startedMs].slice(-PACES_KEPT);
    }
    [this.#startedMs, this.#halfMs] = [nowMs, null];
    const known = active.filter(([author, step]) => this.#intervalMs.has(author) && this.#isCredible(step));
    this.affordable.choose(known.map(([author]) => [author, this.#intervalMs.get(author)])); // SPEC 9.1.6
    return this.nextStep;
  }

  /** SPEC 9.1.1. */
  #active(highest) {
    const needed = this.nextStep - this.#round * (1 + this.#staleness);
    const oldest = needed - this.#limits.ACTIVE_WINDOW_STEPS * this.#round;
    const active = this.#others(highest).filter(([, step]) => step >= oldest);
    return { active, behind: active.filter(([, step]) => step < needed).length };
  }

  /** SPEC 9.1.2, while fewer than half are there. */
  #waitMs() {
    const limits = this.#limits;
    if (this.#paces.length === 0) return limits.STEP_WAIT_MS_START;
    const wanted = Math.floor(limits.STEP_WAIT_FACTOR * median(this.#paces));
    return Math.max(wanted, limits.STEP_WAIT_MS_MIN);
  }

  /** SPEC 9.1.2, for the other half. */
  #graceMs() {
    const pace = this.#paces.length === 0 ? this.#limits.STEP_WAIT_MS_START : median(this.#paces);
    return Math.floor(pace / this.#limits.STEP_GRACE_PART);
  }

  /** Whether an author of this highest step counts: one that is further signs ahead of time. */
  #isCredible(step) {
    return step <= this.nextStep + this.#limits.ROUNDS_AHEAD_MAX * this.#round;
  }

  /** SPEC 9.1.4. */
  #isFarAhead(highest, nowMs, hasCompany) {
    const isAtWork = ([author, step]) =>
      this.#isCredible(step) && this.#heardMs.has(author) && nowMs - this.#heardMs.get(author) <= this.#patienceMs(author);
    const atWork = this.#others(highest).filter(isAtWork).map(([, step]) => step);
    if (atWork.length === 0) return hasCompany && this.#isExpecting(nowMs);
    this.#alone = null;
    return this.nextStep > lowerMedian([...atWork, this.nextStep]) + this.#limits.ROUNDS_AHEAD_MAX * this.#round;
  }

  /** The same while no author is at work, but one may be measuring its first step. */
  #isExpecting(nowMs) {
    this.#alone ??= [nowMs, this.nextStep];
    const [sinceMs, step] = this.#alone;
    const { ROUNDS_AHEAD_MAX: rounds, STEP_WAIT_MS_MAX: mostMs } = this.#limits;
    return this.nextStep > step + rounds * this.#round && nowMs - sinceMs < mostMs;
  }

  #patienceMs(author) {
    const limits = this.#limits;
    const interval = this.#intervalMs.get(author);
    if (interval === undefined) return limits.STEP_WAIT_MS_MAX;
    return clamp(limits.AT_WORK_INTERVALS * interval, limits.STEP_WAIT_MS_START, HEARD_MS);
  }

  /** SPEC 9.6.2: whether an author is still waited for. */
  isAwaiting(highest, nowMs) {
    const last = this.#steps - this.#round;
    return [...this.#heardMs].some(
      ([author, heardMs]) => (highest.get(author) ?? last) < last && nowMs - heardMs <= this.#endPatienceMs(author),
    );
  }

  #endPatienceMs(author) {
    const limits = this.#limits;
    const known = [...this.#intervalMs.values()];
    const longest = known.length > 0 ? Math.max(...known) : limits.STEP_WAIT_MS_MAX;
    const interval = this.#intervalMs.get(author) ?? longest;
    return clamp(limits.END_INTERVALS * interval, limits.STEP_WAIT_MS_START, limits.END_PATIENCE_MS_MAX);
  }
}
