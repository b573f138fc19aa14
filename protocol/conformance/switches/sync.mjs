// How each rule about anti-entropy is switched off (SPEC 8.4).

import { of } from "./table.mjs";

const ANSWERS = [
  ...of("sync.mjs", "sync.json", [
    ["8.4", "pages of 129 authors", "const AUTHORS_PER_PAGE_MAX = 128;", "const AUTHORS_PER_PAGE_MAX = 129;"],
    [
      "8.4",
      "the last page is not known for it",
      "page.length === buckets.length)",
      "page.length < AUTHORS_PER_PAGE_MAX)",
    ],
    [
      "8.4",
      "authors from `after` itself on",
      "Buffer.compare(author, after) > 0",
      "Buffer.compare(author, after) >= 0",
    ],
    ["8.4", "authors of all shards", "asked.has(shardOf(author)) && "],
    ["8.4", "authors by arrival", ".sort(([a], [b]) => Buffer.compare(a, b));\n  const page", ";\n  const page"],
    ["8.4", "the highest bit of a byte first", "1 << (step & 7)", "128 >> (step & 7)"],
    ["8.4", "one record of a void slot", "?.records ?? []", "?.records.slice(0, 1) ?? []"],
    ["8.4", "an answer of any length", "held.slice(0, Math.floor(PULL_BYTES_MAX / size))", "held"],
    [
      "8.4",
      "512 records in every message",
      "Math.min(RECORDS_PER_FRAME_MAX, Math.floor(RECORDS_DATA_MAX / size))",
      "Math.floor(RECORDS_DATA_MAX / size)",
    ],
    [
      "8.4.1 UNREQUESTED",
      "an answer of another kind",
      "demand(ANSWER_KINDS[request.name].includes(reply.name), ",
      "demand(true, ",
    ],
    [
      "8.4.2 UNREQUESTED",
      "another span",
      "reply.fields.span === undefined || reply.fields.span === request.fields.span",
      "true",
    ],
    [
      "8.4.2 UNREQUESTED",
      "another author",
      'reply.name !== "Payloads" || reply.fields.author.equals(request.fields.author)',
      "true",
    ],
    [
      "8.4.3 UNREQUESTED",
      "spans that do not ascend",
      'if (reply.name === "Spans") demandAscending(reply.fields.spans);',
    ],
    [
      "8.4.3 UNREQUESTED",
      "shards that do not ascend",
      'if (reply.name === "Shards") demandAscending(reply.fields.shards);',
    ],
    ["8.4.3 UNREQUESTED", "a number twice", "rows[index - 1][0] < number", "rows[index - 1][0] <= number"],
    [
      "8.4.3 UNREQUESTED",
      "authors that do not ascend",
      'demand(Buffer.compare(previous, author) < 0, "not ascending");',
    ],
    [
      "8.4.3 UNREQUESTED",
      "authors before the one asked for",
      "let previous = after;",
      "let previous = Buffer.alloc(0);",
    ],
    ["8.4.3 UNREQUESTED", "empty pages", "isLast || authors.length > 0", "true"],
    [
      "8.4.3 UNREQUESTED",
      "authors without a slot",
      'demand(valid.some((byte, index) => byte | voided[index]), "an author without a slot");',
    ],
    [
      "8.4.3 UNREQUESTED",
      "slots valid and void",
      'demand(!valid.some((byte, index) => byte & voided[index]), "a slot both valid and void");',
    ],
    ["8.4.3 UNREQUESTED", "empty pages of statements", "isLast || keys.length > 0", "true"],
    [
      "8.4.3 UNREQUESTED",
      "statements before the one asked for",
      "keys.length === 0 || Buffer.compare(after, keys[0]) < 0",
      "true",
    ],
    ["8.4.3 UNREQUESTED", "statements that do not ascend", "Buffer.compare(keys[index - 1], keys[index]) <= 0", "true"],
    ["8.4.3 UNREQUESTED", "any number of one key", "index < most || !keys[index].equals(keys[index - most])", "true"],
    ["8.4.3 UNREQUESTED", "three of one key, whatever it is", "const most = mostOf(keys[index]);", "const most = 2;"],
    [
      "8.4.3",
      "two statements of one key are refused",
      "Buffer.compare(keys[index - 1], keys[index]) <= 0",
      "Buffer.compare(keys[index - 1], keys[index]) < 0",
    ],
  ]),
  ...of("sync.mjs", "statements.json", [
    ["8.4", "no statements' digest", "ledger.roster.digest(), ledger.spans()", "Buffer.alloc(16), ledger.spans()"],
  ]),
  ...of("statements.mjs", "statements.json", [
    ["8.4", "statements from `after` itself on", "Buffer.compare(key, after) > 0", "Buffer.compare(key, after) >= 0"],
    [
      "8.4",
      "pages of statements, not of keys",
      "whole.flatMap((held) => held.map(({ data }) => data)), later.length === whole.length",
      "later.flatMap((held) => held.map(({ data }) => data)).slice(0, count), later.length === whole.length",
    ],
    [
      "8.4",
      "one claim of a void token",
      "whole.flatMap((held) => held.map(({ data }) => data))",
      "whole.map(([{ data }]) => data)",
    ],
    ["8.4", "a page of any number of statements", "while (whole.flat().length > 2 * count) whole.pop();"],
  ]),
];

const ASKING = [
  ...of("asking.mjs", "asking.json", [
    ["8.4", "statements are not asked for", "if (!isSame) yield* this.#fetchStatements();"],
    [
      "8.4",
      "statements are asked for, though there are none",
      "[NO_STATEMENTS, this.#ledger.roster.digest()]",
      "[this.#ledger.roster.digest()]",
    ],
    [
      "8.4",
      "one page of statements",
      "page.is_last];\n    }\n  }\n\n  *#compareSpan",
      "true];\n    }\n  }\n\n  *#compareSpan",
    ],
    [
      "8.4",
      "all shards are asked for",
      "differing(this.#ledger.shards(span), theirs.shards)",
      "differing([], theirs.shards)",
    ],
    ["8.4", "all spans are compared", "differing(this.#ledger.spans(), theirs.spans)", "differing([], theirs.spans)"],
    [
      "8.4",
      "one page of authors",
      "page.authors.at(-1)?.[0] ?? after, page.is_last]",
      "page.authors.at(-1)?.[0] ?? after, true]",
    ],
    [
      "8.4",
      "void slots are not pulled",
      "const unvoided = theirs.void.filter((step) => !own.get(step)?.isVoid);",
      "const unvoided = [];",
    ],
    ["8.4", "slots that do not count are pulled", "this.#ledger.roster.leaves(author, step) && "],
    [
      "8.4",
      "pulled records pass another door",
      'if (verdict === "reject") throw new Rejected(reason);\n    }\n    return [];',
      "}\n    return [];",
    ],
    [
      "8.4.1",
      "answers to requests that are not in flight",
      "session === null || session.number !== reply.fields.request",
      "session === null",
    ],
    ["8.4.4", "any number of authors in a span", "listed > this.#run.manifest.authors_max", "false"],
    ["8.4.3 UNREQUESTED", "any number of statements", "listed <= 2 * this.#ledger.roster.statementsMax", "true"],
    ["8.4.4", "payloads are not compared", "missing.length === 0 && hasCommon && ", "false && "],
    ["8.4.4", "equal hashes are equal payloads", "missing.length === 0 && !this.isFailed && !isVoidHere", "false"],
    ["8.4.4", "equal hashes are pulled beside a void slot", " && !isVoidHere", ""],
    ["8.4.4", "payloads are compared whenever digests differ", "!this.#explains(span, author, theirs)", "true"],
    ["8.4.4", "hashes of any length", "hashes.length !== PAYLOAD_HASH_BYTES * steps.length", "false"],
    [
      "8.4.4",
      "what has the same hash is pulled",
      "return slot?.isVoid === false && !payloadHash(slot.payload)",
      "return slot?.isVoid === false && payloadHash(slot.payload)",
    ],
    ["8.4.5", "pulls of any length", "Math.floor(this.#pullBytesMax / (2 * recordBytes(this.#run.manifest)))", "1024"],
    ["8.4.5", "too few records are enough", "      this.isFailed = true;\n      this.release();"],
    [
      "8.4.5",
      "a failed session goes on",
      "if (!this.isFailed) yield* this.#compareSpan(span);",
      "yield* this.#compareSpan(span);",
    ],
    [
      "8.4.5",
      "pushed records answer a pull",
      "const isAnswer = session?.number === request;",
      "const isAnswer = session !== null;",
    ],
    ["8.4.5", "slots beyond the horizon are pulled", " && step <= this.horizon"],
    ["8.4.6", "two sessions pull one slot", "yield* this.#pull(span, page, this.#taken);", "yield* this.#pull(span, page, new Set());"],
    ["8.4.6", "slots stay taken when a neighbour leaves", "this.#neighbours.get(from)?.session?.release();"],
    ["8.4.6", "live by a session that skipped something", " && !session.hasSkipped"],
    ["8.4.6", "live by a session that failed", "!session.isFailed && "],
    ["8.4.6", "an equal head makes nobody live", "      this.isLive = true;\n"],
    ["8.4.6", "a session ends, and nobody is live", "this.isLive ||= !session.isFailed && !session.hasSkipped;"],
    ["8.4", "a live node asks at the first difference", " || !this.isLive;", " || true;"],
    ["8.4", "a node that is not live waits for the second", " || !this.isLive;", ";"],
    ["8.4", "an equal head does not begin the count anew", "      neighbour.mismatches = 0;\n"],
    ["8.4", "two sessions with one neighbour", "neighbour.session !== null || !isLasting", "!isLasting"],
  ]),
];

export const SWITCHES_OF_SYNC = [...ANSWERS, ...ASKING];
