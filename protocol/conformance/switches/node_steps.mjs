// How each rule of the node machine about its own steps is switched off (SPEC 9.1, 9.2).

import { of } from "./table.mjs";

export const SWITCHES_OF_NODE_STEPS = [
  ...of("node_clock.mjs", "traces_steps.json", [
    ["9.1.1", "active authors are waited for", "if (behind > 0 && nowMs", "if (false && nowMs"],
    ["9.1.1", "those further behind are not", ".filter((step) => step >= oldest);", ";"],
    ["9.1.1", "two rounds", "this.#limits.ACTIVE_WINDOW_STEPS * this.#round", "3 * this.#round"],
    ["9.1.1", "what is needed depends on staleness", "this.#round * (1 + this.#staleness)", "this.#round"],
    ["9.1.2", "half makes a difference", "isHalfThere ? this.#graceMs() : this.#waitMs()", "this.#waitMs()"],
    [
      "9.1.2",
      "fewer than half are waited for longer",
      "isHalfThere ? this.#graceMs() : this.#waitMs()",
      "this.#graceMs()",
    ],
    ["9.1.2", "itself is among them", "2 * (active - behind + 1) >= active + 1", "2 * (active - behind) >= active"],
    ["9.1.2", "twice the pace", "limits.STEP_WAIT_FACTOR * median(this.#paces)", "median(this.#paces)"],
    ["9.1.2", "200 ms at the least", "clamp(wanted, limits.STEP_WAIT_MS_MIN,", "clamp(wanted, 0,"],
    [
      "9.1.2",
      "30 s at the most",
      "clamp(wanted, limits.STEP_WAIT_MS_MIN, limits.STEP_WAIT_MS_MAX)",
      "clamp(wanted, limits.STEP_WAIT_MS_MIN, Infinity)",
    ],
    ["9.1.2", "the median", "* median(this.#paces)", "* Math.max(...this.#paces)"],
    ["9.1.2", "the mean of two in the middle", "* median(this.#paces)", "* lowerMedian(this.#paces)"],
    ["9.1.2", "of the last sixteen", ".slice(-PACES_KEPT);", ";"],
    ["9.1.2", "a twentieth for the others", "pace / this.#limits.STEP_GRACE_PART", "pace"],
    ["9.1.2", "until half had it", "if (isHalfThere) this.#halfMs ??= nowMs;", "this.#halfMs ??= nowMs;"],
    [
      "9.1.2",
      "a wait that ran to its limit is left out",
      "if (this.#halfMs !== null && this.#startedMs !== null) {",
      "this.#halfMs ??= nowMs;\n    if (this.#startedMs !== null) {",
    ],
    ["9.1.2", "from its last step on", "this.#doneMs = nowMs;"],
    [
      "9.1.3",
      "jumps to the frontier",
      "this.nextStep = Math.max(this.nextStep, this.frontier(highest, nowMs)); // SPEC 9.1.3",
    ],
    ["9.1.3", "of the others", "filter(([author]) => author !== this.#own)", "filter(() => true)"],
    ["9.1.3", "of those heard of", "const steps = heard.length > 0 ? heard : this", "const steps = this"],
    ["9.1.3", "within 60 s", "nowMs - this.#heardMs.get(author) <= HEARD_MS;", "true;"],
    [
      "9.1.3",
      "of all, if none was",
      "heard.length > 0 ? heard : this.#others(highest).map(([, step]) => step);",
      "heard;",
    ],
    ["9.1.4", "no more than eight rounds ahead", "if (this.#isFarAhead(highest, nowMs)) return null;"],
    [
      "9.1.4",
      "of those at work",
      "this.#heardMs.has(author) && nowMs - this.#heardMs.get(author) <= this.#patienceMs(author);",
      "true;",
    ],
    ["9.1.4", "for eight of their intervals", "clamp(limits.AT_WORK_INTERVALS * interval,", "clamp(9 * interval,"],
    ["9.1.4", "smoothed", "Math.floor((3 * smoothed + interval) / 4)", "interval"],
    ["9.1.4", "5 s at the least", "* interval, limits.STEP_WAIT_MS_START, HEARD_MS);", "* interval, 0, HEARD_MS);"],
    [
      "9.1.4",
      "60 s at the most",
      "* interval, limits.STEP_WAIT_MS_START, HEARD_MS);",
      "* interval, limits.STEP_WAIT_MS_START, Infinity);",
    ],
    [
      "9.1.4",
      "30 s where no interval is known",
      "if (interval === undefined) return limits.STEP_WAIT_MS_MAX;",
      "if (interval === undefined) return HEARD_MS;",
    ],
    ["9.1.5", "after the last step", "return this.nextStep >= this.#steps;", "return this.nextStep > this.#steps;"],
    [
      "9.1.5",
      "and not when one has",
      "return this.#furthest(highest, nowMs) >= this.#steps - this.#round;",
      "return [...highest.values()].some((step) => step >= this.#steps - this.#round);",
    ],
  ]),
  ...of("node_limits.mjs", "traces_steps.json", [
    [
      "9.1.3",
      "the lower median",
      "return sorted(values)[Math.floor((values.length - 1) / 2)];",
      "return sorted(values)[Math.floor(values.length / 2)];",
    ],
  ]),
  ...of("node_core.mjs", "traces_steps.json", [
    ["9.1.3", "only what raises the highest step counts", "if (isFurther && (", "if (("],
    [
      "9.1.3",
      "while live, or from the frontier on",
      "isFurther && (this.sync.isLive || envelope.step >= frontier)",
      "isFurther",
    ],
    [
      "9.1.3",
      "not live, but from the frontier on",
      "(this.sync.isLive || envelope.step >= frontier)",
      "this.sync.isLive",
    ],
    [
      "9.1.5",
      "a relay, when most have done the last round",
      "return this.clock.isRunOver(this.state.highest(), this.#nowMs);",
      "return false;",
    ],
    [
      "9.2.1",
      "a step is reserved before it is estimated",
      'this.#effects.push(["ReserveStep", step], ["StartEstimate", step, seed]);',
      'this.#effects.push(["StartEstimate", step, seed], ["ReserveStep", step]);',
    ],
    ["9.2.1", "a reserved step is never estimated again", "this.clock.resumeAfter(config.reserved_step);"],
    [
      "9.2.2",
      "stored before it is sent",
      "    this.#effects.push([\"StoreRecords\", fresh, source === null]);\n    if (source !== null) this.recounts.broughtNews(source);\n    if (isNews) for (const record of fresh) this.flood.push(record, source);",
      "    for (const record of fresh) this.flood.push(record, source);\n    this.#send(this.flood.flush(this.#nowMs));\n    this.#effects.push([\"StoreRecords\", fresh, source === null]);",
    ],
    [
      "9.2.3",
      "nothing before it is live",
      "return isAlone || this.sync.isLive || this.snapshots.maySign();",
      "return true;",
    ],
    ["9.2.3", "nothing before its first tick", " || this.#firstTickMs === null) return false;", ") return false;"],
    ["9.2.3", "after 30 s without an answer it goes on", "silentMs >= this.#limits.FIRST_SYNC_TIMEOUT_MS || "],
    ["9.2.3", "an answer begins them anew", "Math.max(this.#firstTickMs, this.sync.answeredMs)", "this.#firstTickMs"],
    [
      "9.2.4",
      "no round at or below its highest",
      "if (isTaken || !this.#wouldCount(step)) return;",
      "if (!this.#wouldCount(step)) return;",
    ],
    ["9.2.4", "nor is one estimated", "this.clock.resumeAfter(this.state.highestOf(this.#author));"],
    [
      "9.2.4",
      "none without a place in the author table",
      "return this.state.hasRoomFor(this.#author) && step",
      "return step",
    ],
  ]),
  ...of("node_core.mjs", "traces_end.json", [
    [
      "9.1.5",
      "once it is live",
      "if (this.#mayContribute() || !(this.sync.isLive || this.sync.peers.length === 0)) return false;",
      "if (this.#mayContribute()) return false;",
    ],
  ]),
  ...of("node_core.mjs", "traces_snapshots.json", [
    ["9.2.3", "a snapshot and all of its own are enough", " || this.snapshots.maySign();", ";"],
  ]),
  ...of("node_snapshots.mjs", "traces_snapshots.json", [
    ["9.2.3", "all of its own must be here", "this.#used !== null && this.#sync.hasOwn && ", "this.#used !== null && "],
  ]),
  ...of("node_core.mjs", "traces_roster.json", [
    ["9.2.4", "none that would not count", " && step < this.state.countsUntil(this.#author);", ";"],
    [
      "9.2.5",
      "none without its renewed basis",
      "if (!this.bases.isHere(Math.floor(next / this.#run.manifest.method.epoch_steps))) return false;",
    ],
  ]),
  ...of("node_bases.mjs", "traces_roster.json", [
    ["9.2.5", "of that epoch", "findLast(([first]) => first <= epoch)", "findLast(() => true)"],
  ]),
];
