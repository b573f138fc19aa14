// Anti-entropy (SPEC 8.4): what answers a request, and whether an answer fits the request.

import { SPAN_STEPS, shardOf } from "./digests.mjs";
import { recordBytes } from "./envelope.mjs";
import { mostOf, parseStatement } from "./statements.mjs";
import { rejectUnless } from "./verdicts.mjs";
import { FRAME_BYTES_MAX, encodeMessage } from "./wire.mjs";

const AUTHORS_PER_PAGE_MAX = 128;
const STATEMENT_KEYS_PER_PAGE = 128;
export const PULL_BYTES_MAX = 131072;
const RECORDS_PER_FRAME_MAX = 512;
const RECORDS_DATA_MAX = FRAME_BYTES_MAX - 64;
const BITMAP_BYTES = SPAN_STEPS / 8;

export function bitmapOf(steps) {
  const bitmap = Buffer.alloc(BITMAP_BYTES);
  for (const step of steps) bitmap[(step % SPAN_STEPS) >>> 3] |= 1 << (step & 7);
  return bitmap;
}

export function stepsOf(bitmap, span) {
  const bits = Array.from({ length: SPAN_STEPS }, (_, bit) => bit);
  return bits.filter((bit) => (bitmap[bit >>> 3] >> (bit & 7)) & 1).map((bit) => span * SPAN_STEPS + bit);
}

const ANSWERS = {
  SpansRequest: (_, ledger, { request }) => [
    encodeMessage("Spans", request, ledger.roster.digest(), ledger.spans()),
  ],
  ShardsRequest: (_, ledger, { request, span }) => [encodeMessage("Shards", request, span, ledger.shards(span))],
  AuthorsRequest: answerAuthors,
  PayloadsRequest: answerPayloads,
  PullRequest: answerPull,
  StatementsRequest: answerStatements,
};

/** The messages (bytes) that answer a decoded request. */
export function answer(run, ledger, { name, fields }) {
  return ANSWERS[name](run, ledger, fields);
}

function answerAuthors(_, ledger, { request, span, shards, after }) {
  const asked = new Set(shards.map(Number));
  const buckets = ledger
    .buckets(span)
    .filter(([author]) => asked.has(shardOf(author)) && Buffer.compare(author, after) > 0)
    .sort(([a], [b]) => Buffer.compare(a, b));
  const page = buckets.slice(0, AUTHORS_PER_PAGE_MAX).map(([author, digest]) => {
    const steps = ledger.steps(span, author);
    return [author, digest, bitmapOf(steps.valid), bitmapOf(steps.void)];
  });
  return [encodeMessage("Authors", request, span, page, page.length === buckets.length)];
}

function answerStatements(_, ledger, { request, after }) {
  return [encodeMessage("Statements", request, ...ledger.roster.page(after, STATEMENT_KEYS_PER_PAGE))];
}

function answerPayloads(_, ledger, { request, span, author }) {
  const hashes = Buffer.concat(ledger.payloadHashes(span, author));
  return [encodeMessage("Payloads", request, span, author, hashes)];
}

function answerPull({ manifest }, ledger, { request, wanted }) {
  const size = recordBytes(manifest);
  const held = wanted.flatMap(([span, author, steps]) =>
    stepsOf(steps, span).flatMap((step) => ledger.slot(author, step)?.records ?? []),
  );
  const sent = held.slice(0, Math.floor(PULL_BYTES_MAX / size));
  const perFrame = Math.min(RECORDS_PER_FRAME_MAX, Math.floor(RECORDS_DATA_MAX / size));
  const frames = [];
  for (let start = 0; start < sent.length; start += perFrame) {
    frames.push(encodeMessage("Records", request, Buffer.concat(sent.slice(start, start + perFrame))));
  }
  return [...frames, encodeMessage("PullDone", request, sent.length)];
}

const ANSWER_KINDS = {
  SpansRequest: ["Spans"],
  ShardsRequest: ["Shards"],
  AuthorsRequest: ["Authors"],
  PayloadsRequest: ["Payloads"],
  PullRequest: ["Records", "PullDone"],
  StatementsRequest: ["Statements"],
};

/** Rejects an answer under the number of the request by rules 1 to 3 of 8.4, statements also by 7.7.1 and 7.7.2. */
export function checkAnswer(run, request, reply) {
  demand(ANSWER_KINDS[request.name].includes(reply.name), "another kind than asked for");
  demand(reply.fields.span === undefined || reply.fields.span === request.fields.span, "another span");
  demand(reply.name !== "Payloads" || reply.fields.author.equals(request.fields.author), "another author");
  if (reply.name === "Spans") demandAscending(reply.fields.spans);
  if (reply.name === "Shards") demandAscending(reply.fields.shards);
  if (reply.name === "Authors") checkAuthors(request.fields.after, reply.fields);
  if (reply.name === "Statements") checkStatements(run, request.fields.after, reply.fields);
}

export function demand(condition, detail) {
  rejectUnless(condition, "UNREQUESTED", detail);
}

export function demandAscending(rows) {
  demand(
    rows.every(([number], index) => index === 0 || rows[index - 1][0] < number),
    "not ascending",
  );
}

function checkAuthors(after, { authors, is_last: isLast }) {
  demand(isLast || authors.length > 0, "an empty page that is not the last");
  let previous = after;
  for (const [author, , valid, voided] of authors) {
    demand(Buffer.compare(previous, author) < 0, "not ascending");
    demand(valid.some((byte, index) => byte | voided[index]), "an author without a slot");
    demand(!valid.some((byte, index) => byte & voided[index]), "a slot both valid and void");
    previous = author;
  }
}

function checkStatements(run, after, { statements, is_last: isLast }) {
  const keys = statements.map((statement) => parseStatement(run, statement).key);
  demand(isLast || keys.length > 0, "an empty page that is not the last");
  demand(keys.length === 0 || Buffer.compare(after, keys[0]) < 0, "not after the key asked for");
  for (let index = 1; index < keys.length; index += 1) {
    demand(Buffer.compare(keys[index - 1], keys[index]) <= 0, "not ascending");
    const most = mostOf(keys[index]);
    demand(index < most || !keys[index].equals(keys[index - most]), "too many of one key");
  }
}
