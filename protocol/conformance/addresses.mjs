// Peer ids, addresses, and what two nodes make of their connections (SPEC 8.8, 8.9).

import { isIPv4, isIPv6 } from "node:net";
import { publicKeyOf, sign } from "./ed25519.mjs";

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const KEY_FORM = Buffer.from("08011220", "hex"); // libp2p's form of an Ed25519 key, before the key
const PEER_FORM = Buffer.concat([Buffer.from("0024", "hex"), KEY_FORM]); // the identity multihash of it
const SIMULTANEOUS_MS = 25000;
const [LASTING_S, REFUSED_S] = [3600, 60];
const NAME = /^[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*\.?$/;
const MAPPED = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/;

export function peerOf(author) {
  let number = BigInt(`0x${Buffer.concat([PEER_FORM, author]).toString("hex")}`);
  let digits = "";
  for (; number > 0n; number /= 58n) digits = BASE58[Number(number % 58n)] + digits;
  return `1${digits}`; // the leading zero byte
}

/** The key, or null. */
export function authorOf(peer) {
  if ([...peer].some((digit) => !BASE58.includes(digit))) return null;
  const number = [...peer].reduce((sum, digit) => sum * 58n + BigInt(BASE58.indexOf(digit)), 0n);
  const author = Buffer.from(number.toString(16).padStart(76, "0").slice(-64), "hex");
  return peerOf(author) === peer ? author : null;
}

export function noisePayload(secretSeed, staticKey) {
  const signature = sign(secretSeed, Buffer.concat([Buffer.from("noise-libp2p-static-key:"), staticKey]));
  const key = Buffer.concat([KEY_FORM, publicKeyOf(secretSeed)]);
  return Buffer.concat([Buffer.of(0x0a, key.length), key, Buffer.of(0x12, signature.length), signature]);
}

/** Which of two sessions between two nodes stays; each: {is_own_dial, at_ms}. */
export function whichStays(own, other, older, newer) {
  if (older.is_own_dial === newer.is_own_dial || newer.at_ms - older.at_ms > SIMULTANEOUS_MS) return "newer";
  const isOwnSmaller = Buffer.compare(own, other) < 0;
  return newer.is_own_dial === isOwnSmaller ? "newer" : "older";
}

/** Seconds for which a dialler stays away after a Bye. */
export function awayAfter(bye) {
  if (bye.startsWith("there is a newer session between us")) return 0;
  const isLasting = bye.startsWith("other protocol version") || bye.startsWith("other run");
  return isLasting ? LASTING_S : REFUSED_S;
}

/** {kind, host, port, peer}, or null. */
export function parseAddress(text) {
  const [empty, kind, host, tcp, port, p2p, peer, ...more] = text.split("/");
  if (empty !== "" || tcp !== "tcp" || more.length > 0 || !/^[0-9]{1,5}$/.test(port ?? "")) return null;
  if (p2p !== undefined && (p2p !== "p2p" || peer === undefined || authorOf(peer) === null)) return null;
  const found = hostOf(kind, host);
  if (found === null || Number(port) > 65535) return null;
  return { ...found, port: Number(port), peer: peer ?? null };
}

/** As it is written: no zeros before a port or in an IPv6 address. */
export function textOf({ kind, host, port, peer }) {
  const short = kind === "ip6" ? new URL(`http://[${host}]`).hostname.slice(1, -1) : host;
  return `/${kind}/${short}/tcp/${port}${peer === null ? "" : `/p2p/${peer}`}`;
}

function hostOf(kind, host) {
  if (kind === "ip4") return isIPv4(host) ? { kind, host } : null;
  if (kind === "ip6") return isIPv6(host) && !host.includes("%") ? ip6(host) : null;
  const isName = ["dns", "dns4", "dns6"].includes(kind) && host.length <= 253 && NAME.test(host);
  return isName ? { kind, host } : null;
}

/** All its digits; an IPv4 address in it is one. */
function ip6(host) {
  const short = new URL(`http://[${host}]`).hostname.slice(1, -1);
  const mapped = MAPPED.exec(short);
  if (mapped !== null) {
    const [high, low] = mapped.slice(1).map((group) => Number.parseInt(group, 16));
    return { kind: "ip4", host: [high >> 8, high & 255, low >> 8, low & 255].join(".") };
  }
  const [before, after] = short.split("::").map((half) => (half === "" ? [] : half.split(":")));
  const zeros = after === undefined ? [] : Array(8 - before.length - after.length).fill("0");
  const groups = [...before, ...zeros, ...(after ?? [])];
  return { kind: "ip6", host: groups.map((group) => group.padStart(4, "0")).join(":") };
}

export function isDialable({ kind, host, port }) {
  return port > 0 && !(kind === "ip4" && host === "0.0.0.0") && !(kind === "ip6" && /^[0:]*$/.test(host));
}
