// The messages (SPEC 8.1) and how bytes become one (SPEC 8.2): a verdict, or {kind, name, fields}.

import { BadMsgpack, pack, unpack } from "./msgpack.mjs";
import { Rejected, rejectUnless } from "./verdicts.mjs";

export const FRAME_BYTES_MAX = 65536;

/** Field types: each tells whether a value fits. */
function unsigned(high) {
  return (value) => (typeof value === "number" || typeof value === "bigint") && value >= 0 && value <= high;
}

function bytes(low, high = low) {
  return (value) => Buffer.isBuffer(value) && value.length >= low && value.length <= high;
}

function text(low, high) {
  return (value) => typeof value === "string" && isWithin([...value].length, low, high);
}

function list(low, high, item) {
  return (value) => Array.isArray(value) && isWithin(value.length, low, high) && value.every(item);
}

function tuple(...types) {
  return (value) => Array.isArray(value) && value.length === types.length && types.every((fits, i) => fits(value[i]));
}

function isWithin(value, low, high) {
  return value >= low && value <= high;
}

const u32 = unsigned(0xffffffff);
const u64 = unsigned(0xffffffffffffffffn);
const span = unsigned(1023);
const shard = unsigned(255);
const author = bytes(32);
const digest = bytes(16);
const bitmap = bytes(128);
const address = text(1, 256);
const bool = (value) => typeof value === "boolean";

// Position is the kind. [name, fields as name -> type].
const MESSAGES = [
  ["Hello", { version: u32, run_id: bytes(32), agent: text(0, 256), listen: list(0, 8, address), head_step: u32 }],
  ["Ping", { nonce: u64 }],
  ["Pong", { nonce: u64 }],
  ["PeersRequest", {}],
  ["Peers", { peers: list(0, 64, tuple(text(1, 128), list(0, 8, address))) }],
  ["ManifestRequest", { offset: u32 }],
  ["ManifestPart", { total: u32, offset: u32, data: bytes(0, 32768) }],
  ["Bye", { reason: text(0, 256) }],
  ["Records", { request: u32, data: bytes(0, 65472) }],
  ["Head", { root: bytes(32), state_digest: bytes(32), updates: u64, step: u32, work_distance: unsigned(16) }],
  ["SpansRequest", { request: u32 }],
  ["Spans", { request: u32, statements: digest, spans: list(0, 1024, tuple(span, digest)) }],
  ["ShardsRequest", { request: u32, span }],
  ["Shards", { request: u32, span, shards: list(0, 256, tuple(shard, digest)) }],
  ["AuthorsRequest", { request: u32, span, shards: list(1, 256, shard), after: bytes(32) }],
  ["Authors", { request: u32, span, authors: list(0, 128, tuple(author, digest, bitmap, bitmap)), is_last: bool }],
  ["PayloadsRequest", { request: u32, span, author }],
  ["Payloads", { request: u32, span, author, hashes: bytes(0, 8192) }],
  ["PullRequest", { request: u32, wanted: list(1, 256, tuple(span, author, bitmap)) }],
  ["PullDone", { request: u32, records: u32 }],
  ["FileRequest", { sha256: bytes(32, 32), offset: u32 }],
  ["FilePart", { total: u32, offset: u32, data: bytes(0, 32768) }],
  ["StatementsRequest", { request: u32, after: bytes(33) }],
  ["Statements", { request: u32, statements: list(0, 256, bytes(1, 193)), is_last: bool }],
  ["AttestationsRequest", {}],
  ["Attestations", { attestations: list(0, 256, bytes(136)) }],
];

export const MESSAGE_NAMES = MESSAGES.map(([name]) => name);

/** Rejects in the order of 8.2. */
export function decodeMessage(frame) {
  rejectUnless(frame.length <= FRAME_BYTES_MAX, "SIZE", `${frame.length} bytes`);
  const [kind, ...values] = readArray(frame);
  rejectUnless(kind in MESSAGES, "MESSAGE_KIND", `kind ${kind}`);
  const [name, types] = MESSAGES[kind];
  rejectUnless(tuple(...Object.values(types))(values), "MESSAGE_FIELD", name);
  rejectUnless(pack([kind, ...values]).equals(frame), "MESSAGE_NOT_CANONICAL", name);
  const fields = Object.fromEntries(Object.keys(types).map((field, index) => [field, values[index]]));
  return { kind: Number(kind), name, fields };
}

function readArray(frame) {
  const value = unpackFrame(frame);
  const isMessage = Array.isArray(value) && (typeof value[0] === "number" || typeof value[0] === "bigint");
  rejectUnless(isMessage, "FRAME", "no array that starts with an integer");
  return value;
}

function unpackFrame(frame) {
  try {
    return unpack(frame);
  } catch (error) {
    if (!(error instanceof BadMsgpack)) throw error;
    throw new Rejected("FRAME", error.message);
  }
}

/** Canonical bytes of a message of this name, fields in order. */
export function encodeMessage(name, ...values) {
  return pack([MESSAGE_NAMES.indexOf(name), ...values]);
}
