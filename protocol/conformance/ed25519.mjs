// Ed25519 with exactly libsodium's verdicts (SPEC 2.3). The checks of points are ours; the equation itself
// ([S]B - [h]A, compared with R as bytes, cofactorless) is OpenSSL's, which agrees once those have passed.

import { createPrivateKey, createPublicKey, sign as opensslSign, verify as opensslVerify } from "node:crypto";
import { GROUP_ORDER, decodePoint, decodeScalar, hasSmallOrder, isCanonical, isInPrimeSubgroup } from "./curve.mjs";
import { hashFields } from "./hashing.mjs";

const PUBLIC_PREFIX = Buffer.from("302a300506032b6570032100", "hex"); // SubjectPublicKeyInfo of RFC 8410
const SECRET_PREFIX = Buffer.from("302e020100300506032b657004220420", "hex"); // PKCS#8 of RFC 8410
const REMEMBERED_MAX = 65536; // one run's author table

const [checkedKeys, checkedSignatures, secretHandles] = [new Map(), new Map(), new Map()];

/** What `compute` gives, which depends on the name alone: it is computed once. */
function remembered(known, name, compute) {
  if (!known.has(name)) {
    if (known.size >= REMEMBERED_MAX) known.clear();
    known.set(name, compute());
  }
  return known.get(name);
}

/** What is known of a key: {isSigner: usable by `verify`, isAuthor: valid as an author, handle: OpenSSL's}. */
function checkKey(key) {
  return remembered(checkedKeys, key.toString("hex"), () => inspectKey(key));
}

function inspectKey(key) {
  const point = key.length === 32 && isCanonical(key) ? decodePoint(key) : null;
  if (point === null || hasSmallOrder(point)) return { isSigner: false, isAuthor: false, handle: null };
  const handle = createPublicKey({ key: Buffer.concat([PUBLIC_PREFIX, key]), format: "der", type: "spki" });
  return { isSigner: true, isAuthor: isInPrimeSubgroup(point), handle };
}

/** A canonical encoding of a point of the prime-order subgroup other than the identity. */
export function isValidAuthorKey(key) {
  return checkKey(Buffer.from(key)).isAuthor;
}

/** Verdict on a 64-byte signature; an author key's own validity is another question (isValidAuthorKey). */
export function verify(key, message, signature) {
  const name = hashFields("signature", key, message, signature).toString("hex");
  return remembered(checkedSignatures, name, () => isSigned(key, message, signature));
}

function isSigned(key, message, signature) {
  if (signature.length !== 64 || decodeScalar(signature.subarray(32)) >= GROUP_ORDER) return false;
  const { isSigner, handle } = checkKey(Buffer.from(key));
  if (!isSigner || !opensslVerify(null, message, handle, signature)) return false;
  const commitment = decodePoint(signature.subarray(0, 32)); // canonical: it equals an encoding computed by OpenSSL
  return !hasSmallOrder(commitment);
}

function secretHandle(secretSeed) {
  return remembered(secretHandles, secretSeed.toString("hex"), () => {
    const key = Buffer.concat([SECRET_PREFIX, secretSeed]);
    return createPrivateKey({ key, format: "der", type: "pkcs8" });
  });
}

export function publicKeyOf(secretSeed) {
  return createPublicKey(secretHandle(secretSeed)).export({ format: "der", type: "spki" }).subarray(-32);
}

export function sign(secretSeed, message) {
  return opensslSign(null, message, secretHandle(secretSeed));
}
