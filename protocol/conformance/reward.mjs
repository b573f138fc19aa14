// The rule of rewards in a manifest (SPEC 1.6): from JSON to a tree of checks. What answers get: reward_checks.mjs.

import { Fraction, parseJson } from "./json.mjs";

const SAMPLES = [2, 64];
const TOKENS = [1, 1024];
const COUNTS = [0, 16384];
const DEPTH_MAX = 8;
const TERMS_MAX = 16;
const ENUM_MAX = 64;
const WEIGHT_MAX = 1_000_000;
const NOT_FIELDS = ["label", "choices", "choice"];
const FIELD_NAME = /^[A-Za-z_\u{80}-\u{10FFFF}][0-9A-Za-z_\u{80}-\u{10FFFF}]*$/u;
const PART = /\{\{|\}\}|\{([^{}]*)\}|[^{}]+/y;
const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const SCHEMA_KEYS = [
  ..."type properties required additionalProperties items const enum".split(" "),
  ..."minimum maximum minLength maxLength minItems maxItems".split(" "),
];

/** A rule or an answer that is not as it must be. */
export class Unfit extends Error {}

function demand(condition, what) {
  if (!condition) throw new Unfit(what);
}

/** The value of a bounded JSON text: Maps, lists, texts, numbers and Fractions. Unfit for all else. */
export function readBounded(text) {
  try {
    return parseJson(text, { isOnceOnly: true, isBounded: true });
  } catch (error) {
    if (error instanceof SyntaxError) throw new Unfit(error.message);
    throw error;
  }
}

/** A number, whole or not, as binary64. */
export function numberIn(value) {
  return value instanceof Fraction ? value.value : value;
}

function isNumber(value) {
  return typeof value === "number" || value instanceof Fraction;
}

function demandWhole(value, [least, most], what) {
  demand(typeof value === "number" && value >= least && value <= most, what);
  return value;
}

function membersOf(value, names, what) {
  demand(value instanceof Map, `${what}: no object`);
  for (const name of value.keys()) demand(names.includes(name), `${what}: unknown ${name}`);
  return value;
}

function memberOr(members, name, otherwise) {
  return members.has(name) ? members.get(name) : otherwise;
}

function demandList(value, [least, most], what) {
  demand(Array.isArray(value) && value.length >= least && value.length <= most, `${what}: no such list`);
  return value;
}

/** The names of the fields in a check, each as often as it is there; a bound alone stands at both ends, and is there once. */
function fieldsIn(part) {
  if (typeof part !== "object" || part === null) return [];
  if ("field" in part) return [part.field];
  return [...new Set(part.values?.() ?? Object.values(part))].flatMap(fieldsIn);
}

/** {check, answer, fields, samples, tokens} of a text, answer null where it has none; Unfit if it is no rule. */
export function readRule(text) {
  const rule = readBounded(text);
  const isText = (value) => {
    if (typeof value === "string") return value.isWellFormed();
    if (value instanceof Map) return [...value.keys(), ...value.values()].every(isText);
    return !Array.isArray(value) || value.every(isText);
  };
  demand(isText(rule), "half of a surrogate pair");
  const members = membersOf(rule, ["check", "samples", "tokens", "answer"], "rule");
  for (const name of ["check", "samples", "tokens"]) demand(members.has(name), `${name} is missing`);
  const check = readCheck(members.get("check"), 1, { terms: 0 });
  const answer = members.has("answer") ? readText(members.get("answer")) : null;
  return {
    check,
    answer,
    fields: [...fieldsIn(check), ...fieldsIn(answer)],
    samples: demandWhole(members.get("samples"), SAMPLES, "samples"),
    tokens: demandWhole(members.get("tokens"), TOKENS, "tokens"),
  };
}

const READERS = {
  exact: readText,
  contains: readText,
  regex: readText,
  number: readNumberRange,
  words: readCounts,
  characters: readCounts,
  json: readSchema,
  sum: readSum,
};

function readCheck(value, depth, counted) {
  demand(depth <= DEPTH_MAX, "checks too deep");
  const members = membersOf(value, Object.keys(READERS), "check");
  demand(members.size === 1, "not one check");
  const [[kind, content]] = members;
  return { kind, content: READERS[kind](content, depth, counted) };
}

function readSum(value, depth, counted) {
  return demandList(value, [1, TERMS_MAX], "sum").map((term) => {
    const [weight, check] = demandList(term, [2, 2], "term");
    counted.terms += 1;
    demand(counted.terms <= TERMS_MAX, "too many terms");
    demand(isNumber(weight) && numberIn(weight) > 0 && numberIn(weight) <= WEIGHT_MAX, "weight");
    return [numberIn(weight), readCheck(check, depth + 1, counted)];
  });
}

/** Literal texts and {field} objects, in order. */
function readText(value) {
  demand(typeof value === "string", "no text");
  const parts = [];
  PART.lastIndex = 0;
  while (PART.lastIndex < value.length) {
    const match = PART.exec(value);
    demand(match !== null, "a single brace");
    const [whole, field] = match;
    if (field === undefined) {
      parts.push(whole === "{{" || whole === "}}" ? whole[0] : whole);
      continue;
    }
    demand(FIELD_NAME.test(field) && !NOT_FIELDS.includes(field), `field ${field}`);
    parts.push({ field });
  }
  return parts;
}

/** The binary64 of a decimal number, or null. */
export function decimalIn(text) {
  const value = /^[+-]?[0-9]+(?:\.[0-9]+)?$/.test(text) ? Number(text) : Infinity;
  return Number.isFinite(value) ? value : null;
}

function readBound(value) {
  if (isNumber(value)) return numberIn(value);
  const parts = readText(value);
  if (parts.some((part) => typeof part === "object")) return parts;
  const number = decimalIn(parts.join(""));
  demand(number !== null, "a bound that is no number");
  return number;
}

function readNumberRange(value) {
  const ends = typeof value === "string" ? [value] : demandList(value, [2, 2], "number");
  const bounds = ends.map(readBound);
  return demandOrder([bounds[0], bounds.at(-1)]);
}

function readCounts(value) {
  return demandOrder(demandList(value, [2, 2], "counts").map((end) => demandWhole(end, COUNTS, "count")));
}

function demandOrder([low, high]) {
  demand(typeof low !== "number" || typeof high !== "number" || low <= high, "an empty range");
  return [low, high];
}

function readSchema(value, depth) {
  demand(depth <= DEPTH_MAX, "schemas too deep");
  const members = membersOf(value, SCHEMA_KEYS, "schema");
  const type = memberOr(members, "type", null);
  demand(!members.has("type") || TYPES.includes(type), "type");
  const isOpen = memberOr(members, "additionalProperties", true);
  demand(typeof isOpen === "boolean", "additionalProperties");
  const required = demandList(memberOr(members, "required", []), [0, Infinity], "required");
  demand(required.every((name) => typeof name === "string"), "required");
  const properties = memberOr(members, "properties", new Map());
  demand(properties instanceof Map, "properties");
  const deeper = (schema) => readSchema(schema, depth + 1);
  const items = members.has("items") ? deeper(members.get("items")) : null;
  return {
    type,
    isOpen,
    required,
    properties: new Map([...properties].map(([name, schema]) => [name, deeper(schema)])),
    items,
    allowed: readAllowed(members),
    value: readEnds(members, "minimum", "maximum", (end) => {
      demand(isNumber(end), "no number");
      return numberIn(end);
    }),
    length: readEnds(members, "minLength", "maxLength", (end) => demandWhole(end, COUNTS, "length")),
    count: readEnds(members, "minItems", "maxItems", (end) => demandWhole(end, COUNTS, "items")),
  };
}

function readEnds(members, least, most, read) {
  const low = members.has(least) ? read(members.get(least)) : -Infinity;
  const high = members.has(most) ? read(members.get(most)) : Infinity;
  return demandOrder([low, high]);
}

function readAllowed(members) {
  demand(!members.has("const") || !members.has("enum"), "const and enum");
  if (members.has("const")) return [readConstant(members.get("const"))];
  return members.has("enum") ? demandList(members.get("enum"), [1, ENUM_MAX], "enum").map(readConstant) : null;
}

function readConstant(value) {
  if (typeof value === "string") return readText(value);
  demand(value === null || typeof value === "boolean" || isNumber(value), "no constant");
  return isNumber(value) ? numberIn(value) : value;
}
