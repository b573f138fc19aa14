// A whole run as one file (SPEC 9.4). Rejects.

import { basisFileBytes, readBasisFile } from "./basis_file.mjs";
import { Coefficients } from "./coefficients.mjs";
import { isDense } from "./dense.mjs";
import { isValidAuthorKey, verify } from "./ed25519.mjs";
import { splitRecords } from "./envelope.mjs";
import { hashFields } from "./hashing.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { readSignedManifest } from "./manifest.mjs";
import { splitStatements } from "./statements.mjs";
import { Rejected, rejectUnless } from "./verdicts.mjs";

const MAGIC = Buffer.from("sfnode/log/1\n\0\0\0", "latin1");
const END_TAG = Buffer.from("sfnode/log-end/1", "ascii");
const [MANIFEST, BASIS, RECORDS, END, STATEMENTS] = [1, 2, 3, 4, 5];
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

/** What the file holds: {run, ledger, coefficients, statements, records, writer, basis}. */
export function readLog(data, blockBytesMax = BLOCK_BYTES_MAX) {
  demand(data.subarray(0, MAGIC.length).equals(MAGIC), "another beginning");
  const reader = new Reader(data.subarray(MAGIC.length));
  const run = readSignedManifest(reader.block({ [MANIFEST]: BLOCK_BYTES_MAX }).body);
  const log = new Log(run, reader, blockBytesMax);
  log.readBasis();
  log.checkEnd(log.readSets());
  demand(reader.isAtEnd, "a byte after the end");
  return log;
}

class Log {
  basis = null;
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
    if (!isDense(this.run.manifest.method)) return;
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
    const due = { [STATEMENTS]: most, [RECORDS]: most, [END]: END_BYTES };
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

  checkEnd({ body, before }) {
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
