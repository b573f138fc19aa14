// Numbers of the node machine shifted by one, and rules that only rare histories show.

import { of } from "./table.mjs";

export const SWITCHES_OF_NODE_SHIFTS = [
  ...of("node_clock.mjs", "traces_steps.json", [
    ["9.1", "fifteen paces", "const PACES_KEPT = 16;", "const PACES_KEPT = 15;"],
    ["9.1", "seventeen paces", "const PACES_KEPT = 16;", "const PACES_KEPT = 17;"],
    ["9.1.2", "half of the others alone", "active.length + 1; // this node", "active.length; // this node"],
    ["9.1.2", "two thirds", "const isHalfThere = 2 *", "const isHalfThere = 3 *"],
    ["9.1", "the other half's share of the lower median", ": median(this.#paces);", ": lowerMedian(this.#paces);"],
    ["9.1", "all less than 64 rounds behind are met", "if (step >= least) this", "if (step > least) this"],
    ["9.1", "finished with the median of all", "return Math.max(-1, ...this.#others(highest).map(([, step]) => this.#roundOf(step)));", "return this.#middle([], highest);"],
    ["9.1.4", "without company it begins to wait anew", "return hasCompany && this.#isExpecting(nowMs);", "{ if (!hasCompany) this.#alone = null; return hasCompany && this.#isExpecting(nowMs); }"],
    ["9.1", "pace ends with the next start", "this.#halfMs - this.#startedMs]", "nowMs - this.#startedMs]"],
  ]),
  ...of("node_clock.mjs", "traces_horizon.json", [
    ["7.3.3", "64 rounds beyond the frontier", "Math.max(this.#middle(this.#heardSteps(highest, nowMs), highest), this.", "Math.max(this.frontier(highest, nowMs), this."],
    ["7.3.3", "or, pulled, beyond all met", "Math.max(told, this.#furthest(this.#heardSteps(", "Math.max(told, this.#furthest(this.#recentSteps("],
  ]),
  ...of("node_clock.mjs", "traces_roster.json", [
    ["9.1", "an interval goes with its author", "      this.#intervalMs.delete(author);\n"],
  ]),
  ...of("node_affordable.mjs", "traces_steps.json", [
    ["9.1.6", "as fast as the others is too slow", "if (took > pace) return", "if (took >= pace) return"],
  ]),
  ...of("node_core.mjs", "traces_steps.json", [
    ["9.1", "not heard of at the frontier", "|| envelope.step >= frontier)", "|| envelope.step > frontier)"],
    ["9.1", "the frontier after each record", "|| envelope.step >= frontier)", "|| envelope.step >= this.#frontier())"],
  ]),
  ...of("node_core.mjs", "traces_end.json", [
    ["9.1", "a void slot's author is heard of", "      this.flood.push(first, null); // SPEC 8.3: for all\n      return true;\n", "      this.flood.push(first, null);\n      this.clock.hear(record.subarray(0, 32).toString(\"hex\"), [0], this.#nowMs);\n      return true;\n"],
  ]),
  ...of("node_sync.mjs", "traces_steps.json", [
    ["9.2.3", "the last neighbour begins the 30 s", "this.metMs ??= nowMs;", "this.metMs = nowMs;"],
    ["9.2.3", "late records do, too", "request) return;\n    neighbour.session.count", "request) return void (this.answeredMs = nowMs);\n    neighbour.session.count"],
  ]),
  ...of("ledger.mjs", "traces_steps.json", [
    ["9.2.4", "a full table has no place for those in it", "this.holdsAnyOf(author) || ", ""],
  ]),
  ...of("node_core.mjs", "traces_roster.json", [
    ["7.7", "not live: nothing is told", "peer, this.sync.isLive || request === 0);", "peer, this.sync.isLive);"],
  ]),
  ...of("node_state.mjs", "traces_roster.json", [
    ["7.7", "from the step after it on", "return step < this.countsUntil(author);", "return step <= this.countsUntil(author);"],
  ]),
  ...of("node_flood.mjs", "traces_flood.json", [
    ["8.3", "late ticks triple the interval", "? 2 * this.#intervalMs", "? 3 * this.#intervalMs"],
    ["8.3", "an empty frame follows full ones", "start < records.length; start +=", "start <= records.length; start +="],
  ]),
  ...of("node_sync.mjs", "traces_snapshots.json", [
    ["9.5", "none from S on is enough", "return newer.length > 0 && newer", "return newer"],
  ]),
  ...of("node_recount.mjs", "traces_flood.json", [
    ["7.6", "during a recount another is begun", "this.#claim.isWhole >= isWhole", "this.#claim.isWhole > isWhole"],
  ]),
  ...of("node_snapshots.mjs", "traces_snapshots.json", [
    ["9.5", "one from S on does", "from < this.#used.step", "from <= this.#used.step"],
  ]),
  ...of("node_clock.mjs", "traces_end.json", [
    ["9.6.2", "the shortest interval", "? Math.max(...known)", "? Math.min(...known)"],
  ]),
  ...of("node_end.mjs", "traces_end.json", [
    ["9.6", "the half hour goes on", "= [0, false, false, null];", "= [0, false, false, this.#finishedMs];"],
  ]),
  ...of("node_limits.mjs", "traces_steps.json", [
    ["9.1.2", "a nineteenth", "STEP_GRACE_PART: 20", "STEP_GRACE_PART: 19"],
    ["9.1.2", "a twenty-first", "STEP_GRACE_PART: 20", "STEP_GRACE_PART: 21"],
    ["9.1.2", "5,001 ms before a pace is known", "STEP_WAIT_MS_START: 5000", "STEP_WAIT_MS_START: 5001"],
    ["9.1.2", "199 ms at the least", "STEP_WAIT_MS_MIN: 200", "STEP_WAIT_MS_MIN: 199"],
    ["9.1.2", "30,001 ms at the most", "STEP_WAIT_MS_MAX: 30000", "STEP_WAIT_MS_MAX: 30001"],
    ["9.1.4", "nine rounds ahead", "ROUNDS_AHEAD_MAX: 8", "ROUNDS_AHEAD_MAX: 9"],
    ["9.1.4", "seven rounds ahead", "ROUNDS_AHEAD_MAX: 8", "ROUNDS_AHEAD_MAX: 7"],
    ["9.1.4", "nine intervals", "AT_WORK_INTERVALS: 8", "AT_WORK_INTERVALS: 9"],
    ["9.2.3", "30,001 ms of silence", "FIRST_SYNC_TIMEOUT_MS: 30000", "FIRST_SYNC_TIMEOUT_MS: 30001"],
  ]),
  ...of("node_limits.mjs", "traces_sync.json", [
    ["8.4.7", "59,999 ms for a request", "ANSWER_MS_MAX: 60000", "ANSWER_MS_MAX: 59999"],
    ["8.4.7", "60,001 ms for a request", "ANSWER_MS_MAX: 60000", "ANSWER_MS_MAX: 60001"],
    ["8.4.7", "10,001 ms of silence", "REQUEST_TIMEOUT_MS: 10000", "REQUEST_TIMEOUT_MS: 10001"],
    ["8.4.7", "999 ms of rest", "SYNC_REST_MS: 1000", "SYNC_REST_MS: 999"],
    ["8.4.7", "59,999 ms of rest at the most", "SYNC_REST_MS_MAX: 60000", "SYNC_REST_MS_MAX: 59999"],
  ]),
  ...of("node_limits.mjs", "traces_end.json", [
    ["9.6", "101 ms between reports", "WORK_TOLD_MS: 100", "WORK_TOLD_MS: 101"],
    ["9.6", "99 ms between reports", "WORK_TOLD_MS: 100", "WORK_TOLD_MS: 99"],
    ["9.6.2", "five intervals", "END_INTERVALS: 4", "END_INTERVALS: 5"],
    ["9.6.2", "a millisecond more than 15 min", "END_PATIENCE_MS_MAX: 900000", "END_PATIENCE_MS_MAX: 900001"],
    ["9.6", "a millisecond more than 30 min", "END_WAIT_MS_MAX: 1800000", "END_WAIT_MS_MAX: 1800001"],
    ["9.6", "fifteen", "WORK_DISTANCE_MAX: 16", "WORK_DISTANCE_MAX: 15"],
  ]),
  ...of("node_limits.mjs", "traces_snapshots.json", [
    ["9.5", "60,001 ms for missing slots", "SNAPSHOT_MISSING_MS: 60000", "SNAPSHOT_MISSING_MS: 60001"],
  ]),
  ...of("node_limits.mjs", "traces_flood.json", [
    ["7.6", "60,001 ms between recounts", "RECOUNT_REST_MS: 60000", "RECOUNT_REST_MS: 60001"],
    ["8.3", "51 ms between frames", "FLUSH_INTERVAL_MS: 50", "FLUSH_INTERVAL_MS: 51"],
    ["8.3", "401 ms on a busy machine", "FLUSH_INTERVAL_MS_MAX: 400", "FLUSH_INTERVAL_MS_MAX: 401"],
    ["8.3", "26 ms are late", "LATE_MS_MAX: 25", "LATE_MS_MAX: 26"],
    ["8.4", "2,001 ms between Heads", "HEAD_INTERVAL_MS: 2000", "HEAD_INTERVAL_MS: 2001"],
  ]),
  ...of("node_sync.mjs", "traces_sync.json", [
    [
      "8.4.7",
      "a session that brought something begins anew",
      "isFailed && !session.hasProgressed ? neighbour.failures + 1 : 0",
      "isFailed && !session.hasProgressed ? neighbour.failures + 1 : neighbour.failures",
    ],
  ]),
  ...of("attestations.mjs", "traces_snapshots.json", [
    [
      "9.5",
      "a neighbour's attestations count when it is live",
      "of [this.#newest, ...this.#told.values()].flatMap(",
      "of [this.#newest].flatMap(",
    ],
    ["9.5.7", "and are held", "teller === null ? [this.#newest, ...this.#told.values()] : ", "teller === null ? [this.#newest] : "],
  ]),
  ...of("node_snapshots.mjs", "traces_snapshots.json", [
    ["9.5", "only nodes that train seek one", "return isTraining && (snapshot", "return (snapshot"],
    ["9.5", "once in a life", ' || this.#outcome !== "none"'],
  ]),
];
