// Names that nodes give themselves (SPEC 8.9).

import { sign, verify } from "./ed25519.mjs";
import { toBase64 } from "./strings.mjs";

const [NAME_LENGTH_MAX, SIGNATURE_BYTES] = [32, 64];
const VISIBLE = /^[^\p{C}\p{Z}]$/u;

const textOf = (seconds, signature, name) => `name:${seconds}:${toBase64(signature)}:${name}`;

function signedBytes(runId, seconds, name) {
  return Buffer.concat([Buffer.from("sfnode/name/1..."), runId, Buffer.from(`${seconds}:${name}`)]);
}

export function writeName(secretSeed, runId, seconds, name) {
  return textOf(seconds, sign(secretSeed, signedBytes(runId, seconds, name)), name);
}

/** {seconds, name} if this author has signed the text for this run, or null. */
export function readName(text, author, runId) {
  const [, digits, encoded, name] = /^name:([0-9]{1,11}):([^:]*):(.*)$/su.exec(text) ?? [];
  if (digits === undefined || !isFit([...name])) return null;
  const [seconds, signature] = [Number(digits), Buffer.from(encoded, "base64url")];
  if (signature.length !== SIGNATURE_BYTES || textOf(seconds, signature, name) !== text) return null;
  return verify(author, signedBytes(runId, seconds, name), signature) ? { seconds, name } : null;
}

function isFit(letters) {
  const isLetter = (letter) => letter === " " || VISIBLE.test(letter);
  if (letters.length < 1 || letters.length > NAME_LENGTH_MAX || !letters.every(isLetter)) return false;
  return letters[0] !== " " && letters.at(-1) !== " ";
}
