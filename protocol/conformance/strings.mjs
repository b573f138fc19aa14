// Texts that people pass on: addresses of runs, invitations, strings to join, tags (SPEC 8.9).

import { createHash } from "node:crypto";
import { isDialable, parseAddress } from "./addresses.mjs";
import { BadMsgpack, pack, unpack } from "./msgpack.mjs";

const JOIN = "sfnode:v1.";
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
const [NODES_MAX, INVITATION_BYTES, USES_MAX, NAME_MAX, DATA_BYTES_MAX] = [4, 96, 100, 256, 2 ** 26];
const [LENGTH_BYTES, CHECK_BYTES] = [2, 4];

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();

/** {runId, nodes: [{text, address}]}, or null. */
export function parseRunAddress(text) {
  const found = /^sfnode:([0-9a-f]{64})@(.*)$/.exec(text);
  const nodes = found === null ? [] : found[2].split(",").map(parseAddress);
  const isNode = (address) => address !== null && address.peer !== null && isDialable(address);
  return nodes.length > 0 && nodes.every(isNode) ? { runId: found[1], nodes } : null;
}

/** {secretSeed, signature, uses}, or null. */
function unpackInvitation(bytes) {
  const uses = bytes.length === INVITATION_BYTES ? 1 : bytes[INVITATION_BYTES];
  const isForMany = bytes.length === INVITATION_BYTES + 1 && uses > 1 && uses <= USES_MAX;
  return isForMany || bytes.length === INVITATION_BYTES ? { secretSeed: bytes.subarray(0, 32), signature: bytes.subarray(32, INVITATION_BYTES), uses } : null;
}

export function writeInvitation(secretSeed, signature, uses = 1) {
  return `invite:${toBase64(Buffer.concat([secretSeed, signature, Buffer.from(uses > 1 ? [uses] : [])]))}`;
}

export function readInvitation(text) {
  const found = /^invite:([A-Za-z0-9_=-]*)$/.exec(text);
  const bytes = found === null ? null : Buffer.from(found[1], "base64url");
  return bytes === null || toBase64(bytes) !== found[1] ? null : unpackInvitation(bytes);
}

/** With the padding, which Node leaves out. */
export function toBase64(bytes) {
  const digits = bytes.toString("base64url");
  return digits.padEnd(Math.ceil(digits.length / 4) * 4, "=");
}

export function tagOf(runId) {
  return sha256(Buffer.from("sfnode/mdns/1"), runId).toString("hex").slice(0, 16);
}

// --- strings to join

/** content: {runId, nodes: [[address, author]], invitation, model, data, dataBytes}. */
export function writeJoin({ runId, nodes, invitation, model, data, dataBytes }) {
  return wrapped(pack([runId, nodes, invitation, model, data, dataBytes]));
}

function wrapped(content) {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt16BE(content.length, 0);
  const check = sha256(Buffer.from("sfnode/join/1"), length, content).subarray(0, CHECK_BYTES);
  return JOIN + toBase32(Buffer.concat([length, content, check]));
}

function toBase32(bytes) {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return (bits.match(/.{1,5}/g) ?? []).map((five) => BASE32[Number.parseInt(five.padEnd(5, "0"), 2)]).join("");
}

function fromBase32(digits) {
  const bits = [...digits].map((digit) => BASE32.indexOf(digit).toString(2).padStart(5, "0")).join("");
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
}

/** The content, or null. */
export function readJoin(text) {
  const found = text.replaceAll(/\s/g, "").toLowerCase();
  if (!found.startsWith(JOIN) || /[^a-z2-7]/.test(found.slice(JOIN.length))) return null;
  const bytes = fromBase32(found.slice(JOIN.length));
  const packed = bytes.subarray(LENGTH_BYTES, -CHECK_BYTES);
  if (bytes.length < LENGTH_BYTES + CHECK_BYTES || wrapped(packed) !== found) return null;
  try {
    return contentOf(unpack(packed));
  } catch (error) {
    if (!(error instanceof BadMsgpack)) throw error;
    return null;
  }
}

const isBytes = (value, ...lengths) => Buffer.isBuffer(value) && lengths.includes(value.length);
const isName = (value) => typeof value === "string" && value !== "" && [...value].length <= NAME_MAX;
const isLength = (value) => Number.isInteger(value) && value >= 0 && value <= DATA_BYTES_MAX;
const isList = (value, least, most) => Array.isArray(value) && value.length >= least && value.length <= most;

function isNode(value) {
  if (!isList(value, 2, 2) || !isName(value[0]) || !isBytes(value[1], 32)) return false;
  const address = parseAddress(value[0]);
  return address !== null && address.peer === null && isDialable(address);
}

function contentOf(plain) {
  if (!isList(plain, 6, 6)) return null;
  const [runId, nodes, invitation, model, data, dataBytes] = plain;
  const isGood =
    isBytes(runId, 32) &&
    isList(nodes, 1, NODES_MAX) &&
    nodes.every(isNode) &&
    Buffer.isBuffer(invitation) &&
    (invitation.length === 0 || unpackInvitation(invitation) !== null) &&
    isName(model) &&
    isName(data) &&
    isLength(dataBytes);
  return isGood ? { runId, nodes, invitation, model, data, dataBytes } : null;
}

