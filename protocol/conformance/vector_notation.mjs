// The notation of the vector files (vectors/README.md): texts of JSON to bytes and numbers, and back.

import { createHash } from "node:crypto";
import { Rejected } from "./verdicts.mjs";

/** What the vectors call the outcomes of a ledger, a roster or a table. */
export const VERDICTS = { counts: "ACCEPT", voids: "VOID", ignore: "IGNORE", reject: "REJECT" };

export const fromHex = (text) => Buffer.from(text, "hex");
export const toHex = (bytes) => Buffer.from(bytes).toString("hex");
export const fromKey = (text) => BigInt(`0x${text}`);
export const toKey = (key) => key.toString(16).padStart(16, "0");
export const fromWord = (text) => Number.parseInt(text, 16);
export const toWord = (word) => word.toString(16).padStart(8, "0");
export const fromFloat64 = (text) => fromHex(text).readDoubleBE(0);
export const toFloat64 = (number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(number);
  return toHex(bytes);
};
export const toDecimal = (number) => BigInt(number).toString();
export const toSigns = (signs) => Array.from(signs, (sign) => (sign > 0 ? "+" : "-")).join("");

/** "bytes*": hexadecimal, a text, a repetition, a slice of the file's base (a Buffer), or a list of these. */
export function fromBytesStar(notation, base = null) {
  if (typeof notation === "string") return fromHex(notation);
  if (Array.isArray(notation)) return Buffer.concat(notation.map((part) => fromBytesStar(part, base)));
  if ("text" in notation) return Buffer.from(notation.text, "utf8");
  if ("slice" in notation) return base.subarray(...notation.slice);
  const once = fromBytesStar(notation.repeat, base);
  return Buffer.alloc(once.length * notation.times, once);
}

/** Bytes in the notation of their expected counterpart: a hash, or else the bytes as that notation would give them. */
export function asWritten(data, expected) {
  if (expected?.sha256 !== undefined) {
    return { sha256: createHash("sha256").update(data).digest("hex"), length: data.length };
  }
  const isEqual = expected !== undefined && !("bye" in Object(expected)) && fromBytesStar(expected).equals(data);
  return isEqual ? expected : toHex(data);
}

/** {verdict: ACCEPT, reason: null} with the members that `action` returns, or REJECT with its reason. */
export function verdictOf(action) {
  try {
    return { verdict: "ACCEPT", reason: null, ...action() };
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return { verdict: "REJECT", reason: error.reason };
  }
}

/** Rows of `length` entries of a flat list. */
export function rowsOf(flat, length) {
  return Array.from({ length: flat.length / length }, (_, row) => flat.slice(row * length, (row + 1) * length));
}
