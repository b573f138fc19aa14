// A whole run as one file (SPEC 9.4). Rejects.

import { basisFileBytes, namedBasis, readBasisFile } from "./basis_file.mjs";
import { Coefficients } from "./coefficients.mjs";
import { isValidAuthorKey, verify } from "./ed25519.mjs";
import { splitRecords } from "./envelope.mjs";
import { hashFields } from "./hashing.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { readSignedManifest } from "./manifest.mjs";
import { splitStatements } from "./statements.mjs";
import { Rejected, rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/log/1\n\0\0\0", "latin1");
const END_TAG = Buffer.from("sfnode/log-end/1", "ascii");
const [MANIFEST, BASIS, RECORDS, END, STATEMENTS, RENEWED] = [1, 2, 3, 4, 5, 6];
const BLOCK_BYTES_MAX = 2 ** 20;
const [HEAD_BYTES, CHECK_BYTES, END_BYTES, SIGNED_BYTES] = [5, 32, 176, 112];

function demand(condition, detail) {
  rejectUnless(condition, "LOG_FORMAT", detail);
}

class Reader {
  #data;
  #offset = 0;
  #check = Buffer.alloc(CHECK_BYTES);

  constructor(data) {
    this.#data = data;
  }

  get isAtEnd() {
    return this.#offset === this.#data.length;
  }

  take(count) {
    const taken = this.#data.subarray(this.#offset, this.#offset + count);
    demand(taken.length === count, "cut off");
    this.#offset += count;
    return taken;
  }

  /** The next block: {kind, body, before: the check before it}. lengthsMax: by each kind that is due. */
  block(lengthsMax) {
    const head = this.take(HEAD_BYTES);
    const [kind, length] = [head[0], head.readUInt32BE(1)];
    demand(kind in lengthsMax, `a block of kind ${kind}`);
    demand(length > 0 && length <= lengthsMax[kind], `${length} bytes`);
    const [body, before] = [this.take(length), this.#check];
    this.#check = hashFields("sfnode/log/1", before, Buffer.of(kind), body);
    demand(this.take(CHECK_BYTES).equals(this.#check), "a check does not fit");
    return { kind, body, before };
  }
}

/** What the file holds: {run, ledger, coefficients, statements, records, writer, basis, renewals}. */
export function readLog(data, blockBytesMax = BLOCK_BYTES_MAX) {
  demand(data.subarray(0, MAGIC.length).equals(MAGIC), "another beginning");
  const reader = new Reader(data.subarray(MAGIC.length));
  const run = readSignedManifest(reader.block({ [MANIFEST]: BLOCK_BYTES_MAX }).body);
  const log = new Log(run, reader, blockBytesMax);
  log.readBasis();
  log.readRenewals(log.readSets());
  demand(reader.isAtEnd, "a byte after the end");
  return log;
}

class Log {
  basis = null;
  renewals = [];
  statements = 0;
  records = 0;
  #reader;
  #blockBytesMax;
  #lastKey = Buffer.alloc(0);
  #lastPlace = Buffer.alloc(0);

  constructor(run, reader, blockBytesMax) {
    this.run = run;
    this.ledger = new Ledger(run);
    this.coefficients = new Coefficients(run);
    this.#reader = reader;
    this.#blockBytesMax = blockBytesMax;
  }

  readBasis() {
    if (this.run.manifest.method.basis === "random") return;
    const parts = [];
    for (let rest = basisFileBytes(this.run.manifest); rest > 0; rest -= parts.at(-1).length) {
      parts.push(this.#reader.block({ [BASIS]: Math.min(rest, BLOCK_BYTES_MAX) }).body);
    }
    this.basis = Buffer.concat(parts);
    readBasisFile(this.run.manifest, this.basis);
  }

  /** Statements and records; the first block after them. */
  readSets() {
    const most = this.#blockBytesMax;
    const due = { [STATEMENTS]: most, [RECORDS]: most, [RENEWED]: most, [END]: END_BYTES };
    for (;;) {
      const block = this.#reader.block(due);
      if (block.kind === STATEMENTS) {
        for (const statement of splitStatements(this.run, block.body)) this.#addStatement(statement);
      } else if (block.kind === RECORDS) {
        for (const record of splitRecords(this.run.manifest, block.body)) this.#addRecord(record);
      } else return block;
      if (block.kind === RECORDS) delete due[STATEMENTS];
    }
  }

  #addStatement(statement) {
    const key = statement.subarray(0, 33);
    demand(Buffer.compare(this.#lastKey, key) <= 0, "statements do not ascend");
    this.#lastKey = key;
    this.#expectKept(this.ledger.state(statement, this.coefficients));
    this.statements += 1;
  }

  #addRecord(record) {
    const place = Buffer.concat([record.subarray(32, 36), record]);
    demand(Buffer.compare(this.#lastPlace, place) < 0, "records do not ascend");
    this.#lastPlace = place;
    this.#expectKept(addTo(this.ledger, this.coefficients, record));
    this.records += 1;
  }

  #expectKept({ verdict, reason }) {
    if (verdict === "reject") throw new Rejected(reason);
    demand(verdict !== "ignore", `no ledger keeps it: ${reason}`);
  }

  /** The renewed bases, of which `block` is the first part if there is any, and the end. */
  readRenewals(block) {
    let next = block;
    for (const sha256 of this.#renewalsNeeded()) {
      const named = namedBasis(this.run.manifest, sha256);
      const parts = [];
      for (let rest = basisFileBytes(named); rest > 0; rest -= parts.at(-1).length) {
        demand(next.kind === RENEWED, "a renewed basis is missing");
        parts.push(next.body);
        next = this.#reader.block({ [RENEWED]: this.#blockBytesMax, [END]: END_BYTES });
      }
      readBasisFile(named, Buffer.concat(parts));
      this.renewals.push(sha256);
    }
    demand(next.kind === END, "a renewed basis that no renewal names");
    this.#checkEnd(next);
  }

  /** Of the epochs up to that of the highest step held: each file once, the manifest's own left out. */
  #renewalsNeeded() {
    const { epoch_steps: epochSteps, basis_sha256: own } = this.run.manifest.method;
    const highest = this.#lastPlace.length > 0 ? this.#lastPlace.readUInt32BE(0) : 0;
    const due = this.ledger.roster.renewals().filter(([epoch]) => epoch <= Math.floor(highest / epochSteps));
    return [...new Set(due.map(([, sha256]) => sha256))].filter((sha256) => sha256 !== own);
  }

  #checkEnd({ body, before }) {
    demand(body.length === END_BYTES, `an end of ${body.length} bytes`);
    const [told, signature] = [body.subarray(0, SIGNED_BYTES), body.subarray(SIGNED_BYTES)];
    this.writer = told.subarray(80);
    const isSigned = verify(this.writer, Buffer.concat([END_TAG, before, told]), signature);
    demand(isValidAuthorKey(this.writer) && isSigned, "the writer did not sign");
    const held = Buffer.alloc(16);
    held.writeBigUInt64BE(BigInt(this.records), 0);
    held.writeBigUInt64BE(BigInt(this.ledger.updates), 8);
    const totals = Buffer.concat([held, this.ledger.root(), this.coefficients.digest()]);
    demand(totals.equals(told.subarray(0, 80)), "other totals");
  }
}
