// Who may contribute to a run (SPEC 2.4, 7.7): statements, and the roster that a set of them makes.

import { isValidAuthorKey, verify } from "./ed25519.mjs";
import { hashFields, innerDigest, u32 } from "./hashing.mjs";
import { Rejected, rejectUnless } from "./verdicts.mjs";

const [ADMISSION, EXCLUSION, CLAIM] = [1, 2, 3];
const KINDS = { open: [EXCLUSION], "allow-list": [ADMISSION, EXCLUSION], invite: [ADMISSION, EXCLUSION, CLAIM] };
const TOKEN_USES_MAX = 100;
const LENGTHS = { [ADMISSION]: 97, [EXCLUSION]: 101, [CLAIM]: 193 };
const KEY_BYTES = 33;
const STATEMENTS_MAX = 131072;
const OWNER_TAG = Buffer.from("sfnode/statement", "ascii");
const CLAIM_TAG = Buffer.from("sfnode/claim/1..", "ascii");

/** Leading zero bits of the hash that a key must find for a run. */
export function workOf(runId, author) {
  const bits = [...hashFields("sfnode/work/1", runId, author)].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const first = bits.indexOf("1");
  return first < 0 ? bits.length : first;
}

export function hasWork({ manifest, runId }, author) {
  return workOf(runId, author) >= manifest.admission.pow_bits;
}

/** The kind that a first byte names: a claim's also says how many may claim the token. */
function kindOf(byte) {
  return byte > CLAIM && byte < CLAIM + TOKEN_USES_MAX ? CLAIM : byte;
}

/** How many statements of one key follow from no others: of a token one more than its uses. */
export function mostOf(key) {
  return kindOf(key[0]) === CLAIM ? key[0] - CLAIM + 2 : 2;
}

/** Rules 1 and 2, and the fields. */
export function parseStatement({ manifest }, data) {
  const kind = kindOf(data[0]);
  const isKnown = KINDS[manifest.admission.kind].includes(kind) && data.length === LENGTHS[kind];
  rejectUnless(isKnown, "STATEMENT_FORMAT", "no statement of this run");
  const start = kind === CLAIM ? 33 : 1;
  const step = kind === EXCLUSION ? data.readUInt32BE(33) : 0;
  rejectUnless(step < manifest.steps, "STATEMENT_FORMAT", `step ${step}`);
  const token = kind === CLAIM ? data.subarray(1, 33) : null;
  const [author, key] = [data.subarray(start, start + 32), data.subarray(0, KEY_BYTES)];
  return { kind, author, step, token, uses: data[0] - CLAIM + 1, key, data };
}

/** Statements that stand end to end. Rejects what is no whole number of them. */
export function splitStatements({ manifest }, data) {
  const found = [];
  for (let rest = data; rest.length > 0; rest = rest.subarray(found.at(-1).length)) {
    const kind = kindOf(rest[0]);
    const isWhole = KINDS[manifest.admission.kind].includes(kind) && rest.length >= LENGTHS[kind];
    rejectUnless(isWhole, "STATEMENT_FORMAT", "no whole number of statements");
    found.push(rest.subarray(0, LENGTHS[kind]));
  }
  return found;
}

/** Rules 3 and 4. */
function checkSignatures({ manifest, runId }, { kind, author, token, data }) {
  const keys = [author, token].filter((key) => key !== null);
  rejectUnless(keys.every(isValidAuthorKey), "AUTHOR_KEY");
  const owner = Buffer.from(manifest.owner, "hex");
  const [end, signature] = kind === CLAIM ? [KEY_BYTES, data.subarray(65, 129)] : [data.length - 64, data.subarray(-64)];
  if (token !== null) {
    const claimed = Buffer.concat([CLAIM_TAG, runId, token, author]);
    rejectUnless(verify(token, claimed, data.subarray(129)), "STATEMENT_SIGNATURE");
  }
  const signed = Buffer.concat([OWNER_TAG, runId, data.subarray(0, end)]);
  rejectUnless(verify(owner, signed, signature), "STATEMENT_SIGNATURE");
}

/** Rules 1 to 4 without a roster. */
export function checkStatement(run, data) {
  const statement = parseStatement(run, data);
  checkSignatures(run, statement);
  return statement;
}

export class Roster {
  #run;
  #held = new Map(); // hex of the key -> list of statements: one, or the claims of a token

  constructor(run, statementsMax = STATEMENTS_MAX) {
    this.#run = run;
    this.statementsMax = statementsMax;
  }

  /** {verdict: "counts" | "ignore" | "reject", reason, authors: those that it may concern}. */
  add(data) {
    try {
      const statement = parseStatement(this.#run, data);
      const name = statement.key.toString("hex");
      const held = this.#held.get(name) ?? [];
      const reason = this.#ignoreReason(statement, held);
      if (reason !== null) return { verdict: "ignore", reason };
      checkSignatures(this.#run, statement);
      this.#held.set(name, statement.kind === CLAIM ? [...held, statement] : [statement]);
      return { verdict: "counts", reason: null, authors: authorsOf(this.#held.get(name)) };
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      return { verdict: "reject", reason: error.reason };
    }
  }

  #ignoreReason({ kind, author, step }, held) {
    if (held.length === 0) return this.#held.size >= this.statementsMax ? "STATEMENTS_FULL" : null;
    const isOld = {
      [ADMISSION]: () => true,
      [EXCLUSION]: () => held[0].step <= step,
      [CLAIM]: () => isVoid(held) || held.some((each) => each.author.equals(author)),
    };
    return isOld[kind]() ? "ALREADY_HELD" : null;
  }

  /** What is sent when a statement is new: itself, or all claims of a token that is void. */
  newsWith(data) {
    const held = this.#held.get(data.subarray(0, KEY_BYTES).toString("hex"));
    return isVoid(held) ? held.map((each) => each.data) : [data];
  }

  isAdmitted(author) {
    if (this.#run.manifest.admission.kind === "open") return hasWork(this.#run, author);
    const good = [...this.#held.values()].filter((held) => !isVoid(held) && [ADMISSION, CLAIM].includes(held[0].kind));
    return good.flat().some((statement) => statement.author.equals(author));
  }

  /** First step that the owner has excluded; Infinity without an exclusion. */
  excludedFrom(author) {
    const held = this.#held.get(Buffer.concat([Buffer.of(EXCLUSION), author]).toString("hex"));
    return held === undefined ? Infinity : held[0].step;
  }

  /** The first excluded step of every author of whom there is one, by the author's hex. */
  exclusions() {
    const found = [...this.#held.values()].filter(([{ kind }]) => kind === EXCLUSION);
    return new Map(found.map(([{ author, step }]) => [author.toString("hex"), step]));
  }

  /** Why a record is not usable, or null. */
  ignoreReasonOf({ author, step }) {
    if (step >= this.excludedFrom(author)) return "EXCLUDED";
    const isListed = this.#run.manifest.admission.kind !== "open";
    return isListed && !this.isAdmitted(author) ? "NOT_ADMITTED" : null;
  }

  /** Whether a slot that is held stays so. */
  leaves(author, step) {
    return this.isAdmitted(author) && step < this.excludedFrom(author);
  }

  #ascending() {
    return [...this.#held.values()].sort(([a], [b]) => Buffer.compare(a.key, b.key));
  }

  /** 16 bytes; zeros when there is none. */
  digest() {
    if (this.#held.size === 0) return Buffer.alloc(16);
    return innerDigest("sfnode/statements/1", this.#ascending().flatMap((held) => [held[0].key, valueOf(held)]));
  }

  get isEmpty() {
    return this.#held.size === 0;
  }

  /** [statements of the first `count` keys after a key, whether these are the last]. */
  page(after, count) {
    const later = this.#ascending().filter(([{ key }]) => Buffer.compare(key, after) > 0);
    const whole = later.slice(0, count);
    while (whole.flat().length > 2 * count) whole.pop();
    return [whole.flatMap((held) => held.map(({ data }) => data)), later.length === whole.length];
  }
}

function authorsOf(held) {
  return held.map(({ author }) => author);
}

/** Whether more authors have claimed a token than may. */
function isVoid([{ kind, uses }, ...others]) {
  return kind === CLAIM && others.length >= uses;
}

function valueOf(held) {
  const [{ kind, step }] = held;
  if (isVoid(held) || kind === ADMISSION) return Buffer.alloc(0);
  return kind === EXCLUSION ? u32(step) : Buffer.concat(authorsOf(held).sort(Buffer.compare));
}
