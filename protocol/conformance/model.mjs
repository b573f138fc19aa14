// What a model's weights are, and the pieces of its files (SPEC 1.5).

import { createHash } from "node:crypto";
import { hashList, u32 } from "./hashing.mjs";

const PIECE_BYTES = 2 ** 20;

function sha256(data) {
  return createHash("sha256").update(data).digest();
}

/** Digest of tensors {name, shape, values}, the values as numbers that binary32 holds. */
export function contentOf(tensors) {
  const named = tensors.map((tensor) => ({ ...tensor, bytes: Buffer.from(tensor.name, "utf8") }));
  named.sort((one, other) => Buffer.compare(one.bytes, other.bytes));
  const fields = named.flatMap(({ bytes, shape, values }) => [
    bytes,
    Buffer.concat(shape.map(u32)),
    sha256(littleEndian(values)),
  ]);
  return hashList("sfnode/weights/1", fields);
}

function littleEndian(values) {
  const data = Buffer.alloc(4 * values.length);
  values.forEach((value, index) => data.writeFloatLE(value, 4 * index));
  return data;
}

/** {bytes, sha256, pieces} of a file. */
export function describeFile(data) {
  const digests = [];
  for (let start = 0; start < data.length; start += PIECE_BYTES) {
    digests.push(sha256(data.subarray(start, start + PIECE_BYTES)));
  }
  return { bytes: data.length, sha256: sha256(data), pieces: sha256(Buffer.concat(digests)) };
}
