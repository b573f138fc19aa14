// The flood's queues (SPEC 8.3): which neighbour is still to be told of which record.

import { recordBytes } from "./envelope.mjs";
import { FRAME_BYTES_MAX, encodeMessage } from "./wire.mjs";

const SIGNATURE_BYTES = 64;
const RECORDS_DATA_MAX = FRAME_BYTES_MAX - 64;

const payloadName = (record) => record.toString("latin1", 0, record.length - SIGNATURE_BYTES);

export class Flood {
  #limits;
  #perFrame;
  #queues = new Map(); // peer -> {records: Map of payload -> record, emptiedMs}
  #intervalMs;

  constructor({ manifest }, limits) {
    this.#limits = limits;
    this.#perFrame = Math.min(limits.RECORDS_PER_FRAME_MAX, Math.floor(RECORDS_DATA_MAX / recordBytes(manifest)));
    this.#intervalMs = limits.FLUSH_INTERVAL_MS;
  }

  open(peer) {
    this.#queues.set(peer, { records: new Map(), emptiedMs: -Infinity });
  }

  close(peer) {
    this.#queues.delete(peer);
  }

  /** For every neighbour but the one it came from. */
  push(record, source) {
    for (const [peer, { records }] of this.#queues) {
      if (peer === source || records.size >= this.#limits.PUSH_QUEUE_RECORDS_MAX) continue;
      records.set(payloadName(record), record);
    }
  }

  /** The neighbour has sent it itself. */
  isKnownTo(peer, record) {
    this.#queues.get(peer)?.records.delete(payloadName(record));
  }

  /** Drops what no longer counts. */
  keep(counts) {
    for (const { records } of this.#queues.values()) {
      for (const [name, record] of [...records]) if (!counts(record)) records.delete(name);
    }
  }

  /** A tick came so late. */
  adapt(lateMs) {
    const { FLUSH_INTERVAL_MS: least, FLUSH_INTERVAL_MS_MAX: most, LATE_MS_MAX: late } = this.#limits;
    const changed = lateMs > late ? 2 * this.#intervalMs : this.#intervalMs - least / 2;
    this.#intervalMs = Math.max(least, Math.min(most, changed));
  }

  /** [peer, message] of all that is due. */
  flush(nowMs) {
    const due = [...this.#queues].filter(
      ([, { records, emptiedMs }]) => records.size > 0 && nowMs >= emptiedMs + this.#intervalMs,
    );
    return due.flatMap(([peer, queue]) => {
      const listed = [...queue.records.values()];
      queue.records.clear();
      queue.emptiedMs = nowMs;
      return this.#frames(listed).map((message) => [peer, message]);
    });
  }

  #frames(records) {
    const frames = [];
    for (let start = 0; start < records.length; start += this.#perFrame) {
      frames.push(encodeMessage("Records", 0, Buffer.concat(records.slice(start, start + this.#perFrame))));
    }
    return frames;
  }
}
