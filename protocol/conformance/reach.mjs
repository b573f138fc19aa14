// How a peer sees the asker, and whether it can dial it (SPEC 8.7).

const [NOT_ASKED, REACHED, NOT_REACHED, NOT_NOW] = [0, 1, 2, 3];
const DIAL_INTERVAL_MS = 10_000;
const ANSWER_BYTES = 27;
const MAPPED = Buffer.from("00000000000000000000ffff", "hex"); // ::ffff:a.b.c.d

/** Answers questions. `dial` takes host and port and tells whether a connection came about. */
export class Answerer {
  #dial;
  #dialledMs = new Map(); // host -> when

  constructor(dial) {
    this.#dial = dial;
  }

  /** What comes of one question. */
  outcome(question, host, nowMs) {
    const port = question.readUInt16BE(0);
    if (port === 0) return NOT_ASKED;
    if (nowMs - (this.#dialledMs.get(host) ?? -Infinity) < DIAL_INTERVAL_MS) return NOT_NOW;
    this.#dialledMs.set(host, nowMs);
    return this.#dial(host, port) ? REACHED : NOT_REACHED;
  }
}

export function writeAnswer({ outcome, unixMs, host, port }) {
  const answer = Buffer.alloc(ANSWER_BYTES);
  answer.writeUInt8(outcome, 0);
  answer.writeBigUInt64BE(unixMs, 1);
  packAddress(host).copy(answer, 9);
  answer.writeUInt16BE(port, 25);
  return answer;
}

/** {outcome, unixMs, host, port}, or null for what is no answer. */
export function readAnswer(data) {
  if (data.length !== ANSWER_BYTES || data[0] > NOT_NOW) return null;
  const host = showAddress(data.subarray(9, 25));
  return { outcome: data[0], unixMs: data.readBigUInt64BE(1), host, port: data.readUInt16BE(25) };
}

/** 16 bytes of an IPv4 address in decimal, or of an IPv6 address written with all its digits. */
function packAddress(host) {
  if (host.includes(".")) return Buffer.concat([MAPPED, Buffer.from(host.split(".").map(Number))]);
  return Buffer.from(host.replaceAll(":", ""), "hex");
}

function showAddress(bytes) {
  if (bytes.subarray(0, MAPPED.length).equals(MAPPED)) return [...bytes.subarray(MAPPED.length)].join(".");
  return bytes.toString("hex").match(/.{4}/g).join(":");
}
