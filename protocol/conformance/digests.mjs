// The five levels of the ledger digest (SPEC 7.5), as functions of what the level below holds.

import { hashFields, hashList, innerDigest, u32 } from "./hashing.mjs";

export const SPAN_STEPS = 1024;
const GROUP_STEPS = 16;
const EMPTY_GROUP = Buffer.alloc(16);

export function payloadHash(payload) {
  return hashFields("sfnode/payload/1", payload).subarray(0, 8);
}

export function shardOf(author) {
  return hashFields("sfnode/author/1", author)[0];
}

/** slots: Map of step -> {payload, isVoid}, of one author within one span. */
export function bucketDigest(span, author, slots) {
  const groups = [];
  for (const step of [...slots.keys()].sort((a, b) => a - b)) {
    const group = Math.floor((step % SPAN_STEPS) / GROUP_STEPS);
    while (groups.length <= group) groups.push(EMPTY_GROUP);
    const slot = slots.get(step).isVoid ? u32(step) : slots.get(step).payload;
    groups[group] = innerDigest("sfnode/group/1", [groups[group], slot]);
  }
  return innerDigest("sfnode/bucket/2", [u32(span), author, Buffer.concat(groups)]);
}

/** buckets: list of [author, bucket digest]. */
export function shardDigest(buckets) {
  return innerDigest("sfnode/shard/1", ascendingBytes(buckets).flat());
}

/** shards: list of [shard number, digest]. */
export function spanDigest(shards) {
  const fields = ascending(shards).flatMap(([shard, digest]) => [Buffer.of(shard), digest]);
  return innerDigest("sfnode/span/1", fields);
}

/** spans: list of [span number, digest]; statements: their digest, if there is one. 32 bytes. */
export function rootDigest(runId, spans, statements) {
  const fields = ascending(spans).flatMap(([span, digest]) => [u32(span), digest]);
  return hashList("sfnode/ledger/1", [runId, ...fields, ...statements]);
}

function ascending(pairs) {
  return [...pairs].sort(([a], [b]) => a - b);
}

function ascendingBytes(pairs) {
  return [...pairs].sort(([a], [b]) => Buffer.compare(a, b));
}
