// How each rule of the node machine about sets, the flood and faults is switched off (SPEC 7.3, 7.6, 7.7, 8.3, 8.5).

import { of } from "./table.mjs";

export const SWITCHES_OF_NODE_SETS = [
  ...of("node_clock.mjs", "traces_horizon.json", [
    ["7.3.3", "the frontier", "Math.max(this.#middle(this.#heardSteps(highest, nowMs), highest), ", "Math.max("],
    ["7.3.3", "the own next step", "highest), this.nextStep, told) + ahead", "highest), told) + ahead"],
    [
      "7.3.3",
      "the step of the neighbour that is pulled from",
      "Math.max(told, this.#furthest(this.#heardSteps(highest, nowMs), highest))",
      "this.#furthest(this.#heardSteps(highest, nowMs), highest)",
    ],
    ["7.3.3", "the highest step held, once all are silent", "Math.max(told, this.#furthest(this.#heardSteps(highest, nowMs), highest))", "told"],
    [
      "7.3.3",
      "it counts only once all are silent",
      "if (steps.length > 0) return this.#roundOf(lowerMedian(steps));\n    return Math.max(-1,",
      "return Math.max(-1,",
    ],
    ["7.3.3", "counted in rounds", "ahead = this.#limits.STEPS_AHEAD_MAX * this.#round", "ahead = this.#limits.STEPS_AHEAD_MAX"],
  ]),
  ...of("node_core.mjs", "traces_horizon.json", [
    ["7.3.3", "the neighbours' steps, of what is pushed", "this.#nowMs, this.sync.stepTold) :", "this.#nowMs, -1) :"],
    [
      "7.3.3",
      "none before the node is live",
      "return this.sync.isLive ? this.clock.horizon(",
      "return true ? this.clock.horizon(",
    ],
    [
      "7.3.3",
      "a session that began before has none",
      "return this.sync.isLive ? this.clock.pulledHorizon(",
      "return true ? this.clock.pulledHorizon(",
    ],
  ]),
  ...of("node_sync.mjs", "traces_horizon.json", [
    ["7.3.3", "the lower of two in the middle", "? lowerMedian(steps)", "? Math.max(...steps)"],
    [
      "7.3.3",
      "a session keeps the horizon of its beginning",
      "session?.number === request ? session.horizon : otherwise",
      "otherwise",
    ],
    ["7.3.3", "nothing of a pull lies beyond it", "? session.horizon : otherwise", "? Infinity : otherwise"],
  ]),
  ...of("ledger.mjs", "traces_horizon.json", [
    [
      "7.3.3",
      "of new slots only",
      "if (barred !== null || slot !== undefined) return barred;",
      "if (barred !== null) return barred;",
    ],
  ]),
  ...of("ledger.mjs", "traces_steps.json", [
    ["7.3.4", "no author beyond the table", 'null : "AUTHORS_FULL"', "null : null"],
  ]),
  ...of("node_core.mjs", "traces_flood.json", [
    ["7.6", "zeros are no state", " && !head.state_digest.equals(NOT_SUMMED)"],
    [
      "7.6",
      "such a head counts for nothing else",
      "this.recounts.claimed(peer, this.#nowMs); // SPEC 7.6\n      return;",
      "this.recounts.claimed(peer, this.#nowMs);",
    ],
    ["8.3", "not while a further event waits", "if (isLast) this.#send(this.flood", "this.#send(this.flood"],
    ["8.3", "the first record of a void slot goes to all", "this.flood.push(first, null); // SPEC 8.3: for all"],
    [
      "8.3",
      "the sender of the second is told the first, too",
      "this.flood.push(first, null);",
      "this.flood.push(first, peer);",
    ],
    [
      "8.3",
      "what is pulled before it is live goes to nobody",
      "const isNews = this.sync.isLive || request === 0; // SPEC 8.3",
      "const isNews = true;",
    ],
    ["8.3", "records are stored first", 'this.#effects.push(["StoreRecords", fresh, source === null]);'],
    ["8.5", "a peer that was dropped is not heard", "this.#close(peer);\n    this.#effects.push", "this.#effects.push"],
    [
      "8.5",
      "records before a bad one are kept",
      "} finally {\n      this.#keep(fresh, peer, isNews); // SPEC 8.5: those before a bad one, too\n    }",
      "} catch (error) {\n      throw error;\n    }\n    this.#keep(fresh, peer, isNews);",
    ],
    ["8.5", "a rejection drops the peer", "this.#drop(peer, error.reason);"],
  ]),
  ...of("node_recount.mjs", "traces_flood.json", [
    ["7.6", "a neighbour that is wrong is dropped", "return isWhole ? peer : null;", "return null;"],
    ["7.6", "only if it has brought a new record", "const isWhole = this.#useful.has(peer);", "const isWhole = true;"],
    ["7.6", "60 s between two recounts", "nowMs < this.#restUntilMs[isWhole] ||"],
    ["7.6", "a rest for each kind", "this.#restUntilMs[isWhole] = nowMs", "this.#restUntilMs.true = this.#restUntilMs.false = nowMs"],
    ["7.6", "one that has left is not dropped", "if (this.#claim?.peer === peer) this.#claim.peer = null;"],
  ]),
  ...of("node_core.mjs", "traces_roster.json", [
    [
      "8.4.5",
      "a record that was ignored answers its slot",
      "this.sync.countRecords(peer, request, records, this.#nowMs);",
      "this.sync.countRecords(peer, request, records.filter((record) => this.state.counts(record)), this.#nowMs);",
    ],
    ["7.7", "statements are stored", 'this.#effects.push(["StoreStatements", fresh]);'],
    ["7.7", "told to all but the source", "this.sync.peers.filter((peer) => peer !== source)", "this.sync.peers"],
    [
      "7.7",
      "of a void token all claims are told",
      "fresh.flatMap((data) => this.state.roster.newsWith(data))",
      "fresh",
    ],
    [
      "7.7",
      "what was asked for before it is live goes to nobody",
      "this.#takeIn(statements, peer, this.sync.isLive || request === 0)",
      "this.#takeIn(statements, peer, true)",
    ],
    ["7.7", "what counts no more leaves the queues", "this.flood.keep((record) => this.state.counts(record));"],
    [
      "7.7",
      "those before a bad one are kept",
      "} finally {\n      this.#keepStatements(fresh, source, isNews);\n    }",
      "} catch (error) {\n      throw error;\n    }\n    this.#keepStatements(fresh, source, isNews);",
    ],
    ["7.7", "authors of whom nothing is held are forgotten", "this.clock.forgetOthers(this.state.standing());"],
  ]),
  ...of("node_state.mjs", "traces_roster.json", [
    ["7.7", "those on the disk, too", 'if (reason === "NOT_ADMITTED") this.ledger.suspend(record);'],
  ]),
  ...of("statements.mjs", "traces_roster.json", [
    ["7.3.1", "excluded since it was asked for", 'if (step >= this.excludedFrom(author)) return "EXCLUDED";'],
    ["7.3.2", "not admitted any more", 'isListed && !this.isAdmitted(author) ? "NOT_ADMITTED" : null', "null"],
  ]),
  ...of("ledger.mjs", "traces_roster.json", [
    ["7.7", "suspended records come back", "if (this.roster.isAdmitted(author)) this.#bringBack(author, coefficients);"],
  ]),
  ...of("node_flood.mjs", "traces_flood.json", [
    ["8.3", "not to the source", "if (peer === source || ", "if ("],
    ["8.3", "not to a neighbour that has sent it", "this.#queues.get(peer)?.records.delete(payloadName(record));"],
    ["8.3", "at most every 50 ms", "records.size > 0 && nowMs >= emptiedMs + this.#intervalMs", "records.size > 0"],
    [
      "8.3",
      "late ticks double the interval",
      "lateMs > late ? 2 * this.#intervalMs",
      "lateMs > late ? this.#intervalMs",
    ],
    ["8.3", "more than 25 ms are late", "lateMs > late ?", "lateMs >= late ?"],
    ["8.3", "other ticks shorten it by 25 ms", ": this.#intervalMs - least / 2", ": this.#intervalMs"],
    ["8.3", "400 ms at most", "Math.max(least, Math.min(most, changed))", "Math.max(least, changed)"],
    [
      "8.3",
      "frames of so many records",
      "start += this.#perFrame) {",
      "start += records.length) {",
      "records.slice(start, start + this.#perFrame)",
      "records",
    ],
    ["8.3", "a full queue drops the newest", " || records.size >= this.#limits.PUSH_QUEUE_RECORDS_MAX"],
  ]),
];
