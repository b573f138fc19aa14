// Hashes, keys and seeds (SPEC 2.1, 2.2). Every digest of the protocol is made here.

import { createHash } from "node:crypto";

export function u32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** SHA-256 over u32(length) || bytes of the domain tag and of each field: 32 bytes. */
export function hashFields(domain, ...fields) {
  return hashList(domain, fields);
}

/** As hashFields, for long lists of fields (a spread would overflow the stack). */
export function hashList(domain, fields) {
  const hash = createHash("sha256");
  addField(hash, Buffer.from(domain, "ascii"));
  for (const field of fields) addField(hash, field);
  return hash.digest();
}

function addField(hash, field) {
  hash.update(u32(field.length));
  hash.update(field);
}

/** The first 16 bytes: what the inner levels of the ledger digest use (SPEC 7.5). */
export function innerDigest(domain, fields) {
  return hashList(domain, fields).subarray(0, 16);
}

/** The first 8 bytes as an integer: a 64-bit generator key (BigInt). */
export function keyOf(domain, ...fields) {
  return hashList(domain, fields).readBigUInt64BE(0);
}

/** Seed of the round that begins at firstStep. */
export function seedOf(runId, author, firstStep) {
  return keyOf("sfnode/seed/1", runId, author, u32(firstStep));
}

export function basisKey(runId, epoch, tensorNumber) {
  return keyOf("sfnode/basis/1", runId, u32(epoch), u32(tensorNumber));
}
