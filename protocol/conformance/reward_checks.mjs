// What an answer gets by a rule of rewards (SPEC 1.6). JavaScript's regular expressions stand for RE2: the vectors have
// only patterns that mean the same in both.

import { Fraction } from "./json.mjs";
import { Unfit, decimalIn, numberIn, readBounded } from "./reward.mjs";

const BYTES_MAX = 16384;
const WHITE_AT_ENDS = /^[\t-\r ]+|[\t-\r ]+$/g;
const WORD = /[^\t-\r ]+/g;

const strip = (text) => text.replace(WHITE_AT_ENDS, "");
const fill = (parts, row, quote = (text) => text) =>
  parts.map((part) => (typeof part === "string" ? part : quote(String(row[part.field])))).join("");
const quoted = (text) => text.replace(/[^\w]/g, (unit) => (unit < "\x80" ? `\\x${unit.charCodeAt(0).toString(16).padStart(2, "0")}` : unit));

/** The reward of an answer, 0 to 1, by the rule that readRule gives. */
export function rewardOf(rule, row, answer, hasEnded) {
  const bytes = Buffer.from(answer, "utf8");
  const isWhole = bytes.length <= BYTES_MAX;
  const text = strip(isWhole ? answer : cut(bytes));
  return given(rule.check, { row, text, hasEnded: hasEnded && isWhole });
}

/** The first bytes as text, without a character that they cut. */
function cut(bytes) {
  let end = BYTES_MAX;
  while ((bytes[end] & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, end).toString("utf8");
}

function given({ kind, content }, found) {
  const { row, text, hasEnded } = found;
  if (kind === "sum") {
    const whole = content.reduce((total, [weight]) => total + weight, 0);
    return content.reduce((total, [weight, check]) => total + weight * given(check, found), 0) / whole;
  }
  if (kind === "contains") {
    const wanted = fill(content, row);
    return Number(wanted !== "" && text.includes(wanted));
  }
  return Number(hasEnded && CHECKS[kind](content, text, row));
}

const CHECKS = {
  exact: (parts, text, row) => text === strip(fill(parts, row)),
  regex: (parts, text, row) => new RegExp(`^(?:${fill(parts, row, quoted)})$`, "u").test(text),
  number(ends, text, row) {
    const value = decimalIn(text);
    const [low, high] = ends.map((end) => (typeof end === "number" ? end : decimalIn(strip(fill(end, row)))));
    return value !== null && low !== null && high !== null && isWithin(value, [low, high]);
  },
  words: (ends, text) => isWithin((text.match(WORD) ?? []).length, ends),
  characters: (ends, text) => isWithin([...text].length, ends), // code points
  json(schema, text, row) {
    try {
      return fits(readBounded(text), schema, row);
    } catch (error) {
      if (error instanceof Unfit) return false;
      throw error;
    }
  },
};

function isWithin(value, [low, high]) {
  return low <= value && value <= high;
}

function typesOf(value) {
  if (value === null) return ["null"];
  if (Array.isArray(value)) return ["array"];
  if (value instanceof Map) return ["object"];
  if (typeof value === "number" || value instanceof Fraction) {
    return Number.isInteger(numberIn(value)) ? ["number", "integer"] : ["number"];
  }
  return [typeof value]; // string, boolean
}

function fits(value, schema, row) {
  const types = typesOf(value);
  if (schema.type !== null && !types.includes(schema.type)) return false;
  const plain = types.includes("number") ? numberIn(value) : value;
  const constants = schema.allowed?.map((each) => (Array.isArray(each) ? fill(each, row) : each));
  if (constants !== undefined && !constants.includes(plain)) return false;
  switch (types[0]) {
    case "number":
      return isWithin(plain, schema.value);
    case "string":
      return isWithin([...value].length, schema.length);
    case "array":
      return isWithin(value.length, schema.count) && (schema.items === null || value.every((each) => fits(each, schema.items, row)));
    case "object":
      return objectFits(value, schema, row);
    default:
      return true;
  }
}

function objectFits(value, { isOpen, required, properties }, row) {
  if (!required.every((name) => value.has(name))) return false;
  return [...value].every(([name, each]) => (properties.has(name) ? fits(each, properties.get(name), row) : isOpen));
}
