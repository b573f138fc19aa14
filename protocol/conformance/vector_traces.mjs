// Cases of traces_*.json: the events of a trace go into a node, and what comes out is written like them.

import { LIMITS } from "./node_limits.mjs";
import { Node } from "./node_core.mjs";
import { createHash } from "node:crypto";
import { fromBytesStar, fromHex, toHex, toKey } from "./vector_notation.mjs";
import { runNamed } from "./vector_messages.mjs";
import { decodeMessage } from "./wire.mjs";

export const TRACES = {
  trace({ manifest, secret_seed: seed, config, limits, disk }, file, expected) {
    const read = (notation) => bytesOf(file, notation);
    const stored = { statements: disk.statements.map(read), records: disk.records.map(read) };
    const node = new Node(runNamed(file, manifest), fromHex(seed), config, stored, { ...LIMITS, ...limits });
    let marks = marksOf(node);
    const events = expected.events.map((event) => {
      const found = play(node, file, event, marks);
      marks = marksOf(node);
      return found;
    });
    return { events };
  },
};

/** "bytes*", in which { part } is that entry of the file's `parts`. */
function bytesOf(file, notation) {
  if (Array.isArray(notation)) return Buffer.concat(notation.map((part) => bytesOf(file, part)));
  return fromBytesStar(notation.part === undefined ? notation : file.parts[notation.part]);
}

function marksOf(node) {
  const { isOver: over, isGivenUp: givenUp } = node.end;
  return { live: node.sync.isLive, finished: node.isFinished, over, given_up: givenUp };
}

/** One event again, with what followed from it here. */
function play(node, file, { at_ms: atMs, event, waits, effects: expected }, before) {
  const effects = node.handle(readEvent(file, event), atMs, !waits);
  const after = marksOf(node);
  const changed = Object.entries(after).filter(([name, is]) => before[name] !== is);
  return {
    at_ms: atMs,
    event,
    ...(waits ? { waits } : {}),
    ...(Object.keys(node.ignored).length > 0 ? { ignored: node.ignored } : {}),
    ...(changed.length > 0 ? { becomes: Object.fromEntries(changed) } : {}),
    effects: effects.map((effect, index) => showEffect(file, effect, expected[index] ?? [])),
  };
}

const BYTES_OF_EVENT = { MessageArrived: 2, StatementSubmitted: 0, SnapshotArrived: 0 }; // which of its members

function readEvent(file, [name, ...members]) {
  const place = BYTES_OF_EVENT[name];
  if (place === undefined) return [name, ...members];
  const data = bytesOf(file, members[place]);
  return name === "MessageArrived" ? [name, members[0], data] : [name, data];
}

/** An effect in the notation of its expected counterpart, as far as it is equal. */
function showEffect(file, [name, ...members], [, ...expected]) {
  const message = name === "SendMessage" ? [members[0], decodeMessage(members[1]).name, members[1]] : members;
  return [name, ...message.map((member, index) => show(file, member, expected[index]))];
}

function show(file, value, expected) {
  if (typeof value === "bigint") return toKey(value);
  if (Array.isArray(value)) return value.map((item, index) => show(file, item, expected?.[index]));
  return Buffer.isBuffer(value) ? showBytes(file, value, expected) : value;
}

function showBytes(file, data, expected) {
  if (expected?.sha256 !== undefined) {
    return { sha256: createHash("sha256").update(data).digest("hex"), length: data.length };
  }
  const isEqual = expected !== undefined && isNotation(expected) && bytesOf(file, expected).equals(data);
  return isEqual ? expected : toHex(data);
}

function isNotation(value) {
  return typeof value === "string" ? /^([0-9a-f]{2})*$/.test(value) : typeof value === "object" && value !== null;
}
