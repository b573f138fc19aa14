// One stream with a peer (SPEC 8.1.1 to 8.1.5): who may say what, and what a node answers by itself.

import { createHash } from "node:crypto";
import { FrameReader } from "./frames.mjs";
import { rejectUnless } from "./verdicts.mjs";
import { decodeMessage, encodeMessage } from "./wire.mjs";

const PART_BYTES_MAX = 32768;
const MANIFEST_BYTES_MAX = 1048576;
const OBSERVER_RUN_ID = Buffer.alloc(32);
const BYE = null; // stands for a Bye whose words the specification leaves open

function demand(condition, detail) {
  rejectUnless(condition, "UNREQUESTED", detail);
}

export class Session {
  isOver = false;
  #hello; // the node's own, as bytes
  #own; // and decoded
  #documents; // {manifest; fileWith and, for neighbours, pieceWith: SHA-256 -> bytes or undefined}
  #isNeighbour; // of one who asks for documents
  #frames = new FrameReader();
  #hear; // what the next message goes to: a method that returns what is said, or {handedOn: true}
  #peersAwaited = 0;
  #hasPeers = false; // those of a full node have come

  /** role: "dialler", "dialled" or, on a stream of /sfnode/files/1, "beside". */
  constructor(role, hello, documents) {
    this.#hello = hello;
    this.#own = decodeMessage(hello).fields;
    this.#documents = documents;
    const first = { dialler: this.#hearAnswer, dialled: this.#hearStranger, beside: this.#serve };
    this.#hear = first[role];
    this.#isNeighbour = role === "beside";
    this.#frames.isIntroduced = this.#isNeighbour;
    this.firstWords = role === "dialler" ? [hello] : [];
  }

  /** The node wants to know peers. */
  askForPeers() {
    this.#peersAwaited += 1;
    return [encodeMessage("PeersRequest")];
  }

  /** Bytes of the stream: {said: messages, or BYE, or a text for the first words of a Bye; isHandedOn}. Rejects. */
  take(piece) {
    const found = { said: [], isHandedOn: false };
    for (const data of this.#frames.take(piece)) {
      const heard = this.#hear(decodeMessage(data));
      if (heard === undefined) found.isHandedOn = true;
      else found.said.push(...heard);
    }
    return found;
  }

  #end(...said) {
    this.isOver = true;
    return said;
  }

  // --- the first words

  #hearStranger({ name, fields }) {
    if (name === "Bye") return this.#end();
    demand(name === "Hello", `${name} before Hello`);
    const mismatch = this.#mismatch(fields);
    if (mismatch !== null) return this.#end(mismatch);
    const isObserver = fields.run_id.equals(OBSERVER_RUN_ID);
    this.#frames.isIntroduced = !isObserver;
    this.#hear = isObserver ? this.#serve : this.#hearNeighbour;
    return [this.#hello];
  }

  #hearAnswer({ name, fields }) {
    if (name === "Peers" && !this.#hasPeers) {
      this.#hasPeers = true;
      return [];
    }
    if (name === "Bye") return this.#end();
    demand(name === "Hello", `${name} before Hello`);
    if (this.#mismatch(fields) !== null || fields.run_id.equals(OBSERVER_RUN_ID)) return this.#end();
    this.#frames.isIntroduced = true;
    this.#hear = this.#hearNeighbour;
    return [];
  }

  #mismatch({ version, run_id: runId }) {
    if (version !== this.#own.version) return "other protocol version";
    return runId.equals(this.#own.run_id) || runId.equals(OBSERVER_RUN_ID) ? null : "other run";
  }

  // --- neighbours

  /** Undefined: the message is for the node. */
  #hearNeighbour({ name, fields }) {
    demand(!["Hello", "ManifestPart", "FilePart", "FileRequest"].includes(name), `${name} within a session`);
    if (name === "Bye") return this.#end();
    if (name === "Ping") return [encodeMessage("Pong", fields.nonce)];
    if (name === "Pong") return [];
    if (name === "PeersRequest") return [encodeMessage("Peers", [])]; // this node knows nobody
    if (name === "Peers") return this.#hearPeers();
    return name === "ManifestRequest" ? [this.#manifestPart(fields)] : undefined;
  }

  #hearPeers() {
    demand(this.#peersAwaited > 0, "Peers that were not asked for");
    this.#peersAwaited -= 1;
    return [];
  }

  // --- documents

  #serve({ name, fields }) {
    if (name === "Bye") return this.#end();
    if (name === "Ping") return [encodeMessage("Pong", fields.nonce)];
    if (name === "ManifestRequest") return [this.#manifestPart(fields)];
    demand(name === "FileRequest", `${name} from an observer`);
    const { fileWith, pieceWith } = this.#documents;
    const piece = this.#isNeighbour ? pieceWith(fields.sha256) : undefined;
    const file = piece ?? fileWith(fields.sha256);
    return file === undefined ? this.#end(BYE) : [part("FilePart", file, fields.offset)];
  }

  #manifestPart({ offset }) {
    return part("ManifestPart", this.#documents.manifest, offset);
  }
}

function part(name, document, offset) {
  return encodeMessage(name, document.length, offset, document.subarray(offset, offset + PART_BYTES_MAX));
}

/** A "manifest", "file" or "piece" that comes in parts. total, sha256 (hex): null where they are not known before. */
export class Download {
  received = 0;
  #kind; // of the messages that bring it
  #isPiece;
  #total;
  #sha256;
  #bytesMax;
  #parts = [];

  constructor(document, total, sha256) {
    this.#kind = document === "manifest" ? "ManifestPart" : "FilePart";
    this.#isPiece = document === "piece";
    this.#total = total;
    this.#sha256 = sha256;
    this.#bytesMax = total ?? MANIFEST_BYTES_MAX;
  }

  /** The next message of whoever is asked. False: it has left. Rejects. */
  take({ name, fields }) {
    if (name === "Bye") return false;
    demand(name === this.#kind, `${name} instead of ${this.#kind}`);
    const { total, offset, data } = fields;
    const length = Math.min(PART_BYTES_MAX, total - offset);
    const isAsked = offset === this.received && data.length === length && length > 0;
    const isOfDocument = total === (this.#total ?? total) && total <= this.#bytesMax;
    rejectUnless(isAsked && isOfDocument, "MESSAGE_FIELD", `a part at ${offset} of ${total}`);
    this.#total = total;
    this.#parts.push(data);
    this.received += data.length;
    const isLie = this.#isPiece && this.received === total && !this.isWhole;
    rejectUnless(!isLie, "MESSAGE_FIELD", "a piece with another hash");
    return true;
  }

  /** Whether all of it has come, and is what was asked for. */
  get isWhole() {
    if (this.received !== this.#total) return false;
    const digest = createHash("sha256").update(Buffer.concat(this.#parts)).digest("hex");
    return digest === (this.#sha256 ?? digest);
  }
}
