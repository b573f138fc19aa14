// JSON as the manifest needs it (SPEC 1.1, 1.2): a parser that tells 1 from 1.0, and the canonical writer.
// JSON.parse cannot be used: it gives the same number for both, and its objects mistake some keys.

/** A number with a fraction or an exponent: never valid in a manifest. */
export class Fraction {
  constructor(value) {
    this.value = value;
  }
}

const LEVELS_MAX = 64;
const BLANKS = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const LITERALS = [
  ["true", true],
  ["false", false],
  ["null", null],
];

class Reader {
  #text;
  #offset = 0;

  constructor(text) {
    this.#text = text;
  }

  #skipBlanks() {
    BLANKS.lastIndex = this.#offset;
    BLANKS.exec(this.#text);
    this.#offset = BLANKS.lastIndex;
  }

  /** Next significant character, "" at the end. */
  peek() {
    this.#skipBlanks();
    return this.#text.charAt(this.#offset);
  }

  /** Takes the next character if it is this one. */
  take(character) {
    const isNext = this.peek() === character;
    if (isNext) this.#offset += 1;
    return isNext;
  }

  expect(character) {
    if (!this.take(character)) throw new SyntaxError(`no ${character} at ${this.#offset}`);
  }

  key() {
    if (this.peek() !== '"') throw new SyntaxError(`no key at ${this.#offset}`);
    const key = this.#string();
    this.expect(":");
    return key;
  }

  scalar(isBounded) {
    if (this.peek() === '"') return this.#string();
    for (const [word, value] of LITERALS) {
      if (!this.#text.startsWith(word, this.#offset)) continue;
      this.#offset += word.length;
      return value;
    }
    return this.#number(isBounded);
  }

  #string() {
    const start = this.#offset;
    let end = start + 1;
    while (end < this.#text.length && this.#text[end] !== '"') end += this.#text[end] === "\\" ? 2 : 1;
    this.#offset = end + 1;
    return JSON.parse(this.#text.slice(start, end + 1)); // one string: its escapes and control characters
  }

  #number(isBounded) {
    NUMBER.lastIndex = this.#offset;
    const match = NUMBER.exec(this.#text);
    if (match === null) throw new SyntaxError(`no value at ${this.#offset}`);
    this.#offset = NUMBER.lastIndex;
    if (isBounded && !Number.isFinite(Number(match[0]))) throw new SyntaxError("a number beyond binary64");
    if (match[1] !== undefined || match[2] !== undefined) return new Fraction(Number(match[0]));
    // Beyond 2^53 this is not exact, but every bound is below; the sum with 0 turns -0 into 0.
    return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, Number(match[0]))) + 0;
  }
}

/**
 * Objects become Maps (of repeated keys the last counts, unless each may be there once only), lists Arrays, integers
 * numbers. isBounded: not too many levels, and only numbers of binary64 (SPEC 1.6). SyntaxError otherwise.
 */
export function parseJson(text, { isOnceOnly = false, isBounded = false } = {}) {
  const reader = new Reader(text);
  const open = []; // containers not yet closed: no recursion, so no depth overflows the stack
  for (;;) {
    const begun = beginValue(reader, open, isBounded);
    if (begun === OPENED) continue;
    const whole = completeValue(reader, open, begun, isOnceOnly);
    if (whole === OPENED) continue;
    if (reader.peek() !== "") throw new SyntaxError("text after the value");
    return whole;
  }
}

const OPENED = Symbol("a value is to follow");

function beginValue(reader, open, isBounded) {
  if (isBounded && open.length >= LEVELS_MAX && "[{".includes(reader.peek() || " ")) throw new SyntaxError("too deep");
  if (reader.take("[")) {
    if (reader.take("]")) return [];
    open.push({ container: [], key: null });
    return OPENED;
  }
  if (reader.take("{")) {
    if (reader.take("}")) return new Map();
    open.push({ container: new Map(), key: reader.key() });
    return OPENED;
  }
  return reader.scalar(isBounded);
}

/** Puts a value into its container, and that into its own where it ends: the outermost value, or OPENED. */
function completeValue(reader, open, first, isOnceOnly) {
  let value = first;
  while (open.length > 0) {
    const top = open[open.length - 1];
    const isList = Array.isArray(top.container);
    if (isList) top.container.push(value);
    else if (isOnceOnly && top.container.has(top.key)) throw new SyntaxError("a key twice");
    else top.container.set(top.key, value);
    if (reader.take(",")) {
      if (!isList) top.key = reader.key();
      return OPENED;
    }
    reader.expect(isList ? "]" : "}");
    value = open.pop().container;
  }
  return value;
}

const SHORT_ESCAPES = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f" };

function escapeUnit(unit) {
  return SHORT_ESCAPES[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function writeString(text) {
  // Without the u flag a match is a UTF-16 unit, so surrogate pairs come by themselves.
  return `"${text.replace(/["\\]|[^ -~]/g, escapeUnit)}"`;
}

/** Canonical text of plain objects (whose keys are ASCII), lists, texts and integers. */
export function writeCanonical(value) {
  if (typeof value === "string") return writeString(value);
  if (Array.isArray(value)) return `[${value.map(writeCanonical).join(",")}]`;
  if (typeof value !== "object") return String(value);
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${writeString(key)}:${writeCanonical(value[key])}`).join(",")}}`;
}
