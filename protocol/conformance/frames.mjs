// Frames on a byte stream (SPEC 8, 8.2.1): u32(length), then one message.

import { rejectUnless } from "./verdicts.mjs";
import { FRAME_BYTES_MAX } from "./wire.mjs";

const STRANGERS_FRAME_BYTES_MAX = 1024;
const LENGTH_BYTES = 4;

export class FrameReader {
  isIntroduced = false; // the peer has said Hello
  #held = Buffer.alloc(0);

  /** More bytes have come: the messages that are whole now, one by one. Rejects FRAME. */
  *take(piece) {
    this.#held = Buffer.concat([this.#held, piece]);
    while (this.#held.length >= LENGTH_BYTES) {
      const length = this.#held.readUInt32BE(0);
      const most = this.isIntroduced ? FRAME_BYTES_MAX : STRANGERS_FRAME_BYTES_MAX;
      rejectUnless(length > 0 && length <= most, "FRAME", `${length} bytes`);
      const end = LENGTH_BYTES + length;
      if (this.#held.length < end) return;
      const message = this.#held.subarray(LENGTH_BYTES, end);
      this.#held = this.#held.subarray(end);
      yield message;
    }
  }
}
