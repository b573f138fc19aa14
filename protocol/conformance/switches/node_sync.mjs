// How each rule of the node machine about anti-entropy is switched off (SPEC 8.4).

import { of } from "./table.mjs";

export const SWITCHES_OF_NODE_SYNC = [
  ...of("node_sync.mjs", "traces_sync.json", [
    ["8.4", "a Head every 2 s", "nowMs - headSentMs >= this.#limits.HEAD_INTERVAL_MS", "true"],
    ["8.4", "live: another root twice in a row", "!this.isLive || neighbour.mismatches >= MISMATCHES_MIN", "true"],
    [
      "8.4",
      "an equal root in between starts anew",
      "neighbour.mismatches = 0;\n      this.isLive = true;",
      "this.isLive = true;",
    ],
    ["8.4", "not live: once is enough", "!this.isLive || neighbour.mismatches", "neighbour.mismatches"],
    ["8.4", "one session per neighbour", "if (neighbour.session !== null || nowMs", "if (nowMs"],
    ["8.4.1", "a late answer is ignored", "if (neighbour?.session?.number !== reply.fields.request) return [];"],
    [
      "8.4.1",
      "numbers go on from the one that was drawn",
      "this.#lastRequest = firstRequest;",
      "this.#lastRequest = 0;",
    ],
    ["8.4.1", "and round to 1", "const REQUEST_MAX = 0xffffffff;", "const REQUEST_MAX = 0x1ffffffff;"],
    ["8.4.6", "a session that skipped makes nobody live", "!isFailed && !session.hasSkipped;", "!isFailed;"],
    ["8.4.6", "one that failed neither", "!isFailed && !session.hasSkipped;", "!session.hasSkipped;"],
    ["8.4.6", "a neighbour that leaves gives back what it pulled", "neighbour?.session?.release();"],
    ["8.4.7", "asked once more after 5 s", "silentMs >= timeoutMs / 2 && ", "false && "],
    ["8.4.7", "and not again", "neighbour.isAskedAgain = true;"],
    ["8.4.7", "given up after 10 s", "if (silentMs >= timeoutMs || ", "if ("],
    ["8.4.7", "given up after 60 s in all", " || nowMs - neighbour.askedMs >= answerMs"],
    [
      "8.4.7",
      "parts of an answer count",
      "neighbour.session.count(records);\n    neighbour.heardMs = this.answeredMs = nowMs;",
      "neighbour.session.count(records);",
    ],
    ["8.4.7", "a rest between sessions", " || nowMs < neighbour.restUntilMs"],
    ["8.4.7", "each failure doubles it", "least * 2 ** neighbour.failures", "least"],
    ["8.4.7", "not if a record came", "isFailed && !session.hasProgressed ?", "isFailed ?"],
    ["8.4.7", "60 s at most", "Math.min(least * 2 ** neighbour.failures, most)", "least * 2 ** neighbour.failures"],
  ]),
  ...of("node_core.mjs", "traces_sync.json", [
    [
      "8.4",
      "a Head when they meet",
      "this.#sendHead(peer);\n      this.#send(this.snapshots",
      "this.#send(this.snapshots",
    ],
  ]),
  ...of("asking.mjs", "traces_roster.json", [
    ["8.4", "statements first", "if (!isSame) yield* this.#fetchStatements();"],
    [
      "8.4",
      "none of a neighbour without statements",
      "[NO_STATEMENTS, this.#ledger.roster.digest()]",
      "[this.#ledger.roster.digest()]",
    ],
    [
      "8.4",
      "statements page by page",
      "page.is_last];\n    }\n  }\n\n  *#compareSpan",
      "true];\n    }\n  }\n\n  *#compareSpan",
    ],
    ["8.4", "only slots that count by the own roster", "missing = missing.filter((step) => this.#ledger.roster.leaves(author, step));"],
  ]),
  ...of("asking.mjs", "traces_sync.json", [
    ["8.4", "with a full author table, no slot of a new author", " || !this.#ledger.hasRoomFor(author)) return []", ") return []"],
    ["8.4", "only spans that differ", "differing(this.#ledger.spans(), theirs.spans)", "differing([], theirs.spans)"],
    [
      "8.4",
      "only shards that differ",
      "differing(this.#ledger.shards(span), theirs.shards)",
      "differing([], theirs.shards)",
    ],
    [
      "8.4",
      "authors page by page",
      "page.authors.at(-1)?.[0] ?? after, page.is_last]",
      "page.authors.at(-1)?.[0] ?? after, true]",
    ],
    [
      "8.4",
      "slots that are void there and not here",
      "const unvoided = theirs.void.filter((step) => !own.get(step)?.isVoid);",
      "const unvoided = [];",
    ],
    ["8.4.4", "no more authors than the run may have", "listed > this.#run.manifest.authors_max", "false"],
    ["8.4.4", "payload hashes where nothing is missing", "missing.length === 0 && hasCommon && ", "false && "],
    ["8.4.4", "not if the own slots give their digest", "!this.#explains(span, author, theirs)", "true"],
    [
      "8.4.4",
      "a length that does not fit fails the session",
      "      this.isFailed = true;\n      return [];",
      "      return [];",
    ],
    [
      "8.4.5",
      "so many slots in a pull",
      "Math.floor(this.#pullBytesMax / (2 * recordBytes(this.#run.manifest)))",
      "1000",
    ],
    ["8.4.5", "room for two records of each", "(2 * recordBytes(", "(1 * recordBytes("],
    ["8.4.5", "a slot without an answer fails the session", "      this.isFailed = true;\n      this.release();"],
    [
      "8.4.5",
      "an answer is a record of the slot",
      "const slot = slotKey(record.subarray(0, 32), record.readUInt32BE(32));",
      "const [slot] = this.#asked;",
    ],
    ["8.4.6", "what another pull asks for is left out", "yield* this.#pull(span, page, this.#taken);", "yield* this.#pull(span, page, new Set());"],
    ["8.4.6", "only until it is answered", "      this.#taken.delete(slot);\n"],
    ["8.4.6", "so is what has come", "own.get(step)?.isVoid || (own.has(step) && !pairs.has(step))", "false"],
    ["8.4.6", "but not one record of two", "...theirs.void, "],
    ["8.4.6", "a session that failed has skipped nothing", "!this.isFailed && this.#open(", "this.#open("],
    ["8.4.6", "asked for at the end of the page", "this.#isThorough && !this.isFailed", "false"],
    ["8.4.6", "by the session after one that skipped", "this.#isThorough && !this.isFailed", "!this.isFailed"],
  ]),
  ...of("sync.mjs", "traces_flood.json", [
    [
      "8.4.1",
      "an answer of another kind is refused",
      'demand(ANSWER_KINDS[request.name].includes(reply.name), "another kind than asked for");',
    ],
  ]),
  ...of("sync.mjs", "traces_roster.json", [
    ["8.4.3", "statements ascend", 'demand(Buffer.compare(keys[index - 1], keys[index]) <= 0, "not ascending");'],
    [
      "8.4.3",
      "statements go on beyond the page before",
      'demand(keys.length === 0 || Buffer.compare(after, keys[0]) < 0, "not after the key asked for");',
    ],
    [
      "8.4.3",
      "a page of statements that is not the last brings one",
      'demand(isLast || keys.length > 0, "an empty page that is not the last");',
    ],
    ["8.4.3", "two of one key at most", 'demand(index < most || !keys[index].equals(keys[index - most]), "too many of one key");'],
  ]),
  ...of("sync.mjs", "traces_sync.json", [
    [
      "8.4.2",
      "the span that was asked about",
      'demand(reply.fields.span === undefined || reply.fields.span === request.fields.span, "another span");',
    ],
    [
      "8.4.2",
      "the author that was asked about",
      'demand(reply.name !== "Payloads" || reply.fields.author.equals(request.fields.author), "another author");',
    ],
    ["8.4.3", "authors ascend", 'demand(Buffer.compare(previous, author) < 0, "not ascending");'],
    [
      "8.4.3",
      "a page that is not the last brings one",
      'demand(isLast || authors.length > 0, "an empty page that is not the last");',
    ],
    [
      "8.4.3",
      "each author has a slot",
      'demand(valid.some((byte, index) => byte | voided[index]), "an author without a slot");',
    ],
    [
      "8.4.3",
      "no slot is both valid and void",
      'demand(!valid.some((byte, index) => byte & voided[index]), "a slot both valid and void");',
    ],
  ]),
  ...of("asking.mjs", "traces_horizon.json", [
    ["8.4.5", "nothing beyond the horizon is asked for", "missing.filter((step) => step <= this.horizon)", "missing"],
    ["8.4", "cut: slots beyond the horizon", "this.isCut ||= missing.some((step) => step > this.horizon);"],
    ["8.4", "cut: spans beyond it", "this.isCut = true;\n      else", "{}\n      else"],
    ["8.4", "spans beyond it are looked at", "if (span * 1024 > this.horizon) this.isCut = true;\n      else if", "if"],
  ]),
  ...of("node_sync.mjs", "traces_horizon.json", [
    ["8.4", "another session follows one that was cut", 'typeof cutAt === "number"', "false"],
    ["8.4", "without a rest", "    neighbour.restUntilMs = 0;\n"],
    ["8.4", "without a second difference", "    neighbour.mismatches = MISMATCHES_MIN;\n"],
  ]),
  ...of("node_core.mjs", "traces_horizon.json", [
    ["8.4", "if the horizon has moved by 32 rounds", "      if (this.#pulledHorizon(head.step) < step + moved) continue;\n"],
    ["8.4", "33 rounds", "(this.#limits.STEPS_AHEAD_MAX / 2)", "(this.#limits.STEPS_AHEAD_MAX / 2 + 1)"],
  ]),
  ...of("node_sync.mjs", "traces_steps.json", [
    ["8.4.6", "live from an equal Head on", "this.isLive = true;"],
  ]),
];
