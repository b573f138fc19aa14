// How each rule about rewards is switched off (SPEC 1.6).

import { of } from "./table.mjs";

export const SWITCHES_OF_REWARDS = [
  ...of("json.mjs", "manifests.json", [
    ["1.6", "numbers beyond binary64", "isBounded && !Number.isFinite", "false && !Number.isFinite"],
    ["1.6", "any number of levels", "isBounded && open.length >= LEVELS_MAX", "false"],
  ]),
  ...of("reward.mjs", "manifests.json", [
    ["1.6", "checks nest without bound", 'demand(depth <= DEPTH_MAX, "checks too deep");', ""],
    ["1.6", "schemas nest without bound", 'demand(depth <= DEPTH_MAX, "schemas too deep");', ""],
    ["1.6", "any number of terms", 'demand(counted.terms <= TERMS_MAX, "too many terms");', ""],
    ["1.6", "a weight of nothing", "numberIn(weight) > 0", "numberIn(weight) >= 0"],
    ["1.6", "any weight", "numberIn(weight) <= WEIGHT_MAX", "true"],
    ["1.6", "the last of repeated keys", "isOnceOnly: true", "isOnceOnly: false"],
    ["1.6", "half of a surrogate pair", 'demand(isText(rule), "half of a surrogate pair");', ""],
    [
      "1.6",
      "more keywords of JSON Schema",
      'membersOf(value, SCHEMA_KEYS, "schema")',
      'membersOf(value, [...SCHEMA_KEYS, "pattern"], "schema")',
    ],
    ["1.6", "two checks", 'demand(members.size === 1, "not one check");', ""],
    ["1.6", "any word is a field", " && !NOT_FIELDS.includes(field)", ""],
    ["1.6", "schemas in sums nest anew", "json: readSchema,", "json: (value) => readSchema(value, 1),"],
    ["1.6", "a constant has no braces", 'if (typeof value === "string") return readText(value);', 'if (typeof value === "string") return [value];'],
    ["1.6", "a bound is stripped", 'decimalIn(parts.join(""));', 'decimalIn(parts.join("").trim());'],
    ["1.6", "a range of one value is empty", "low <= high, ", "low < high, "],
    ["1.6", "an empty range", "low <= high, ", "true, "],
    ["1.6", "a bound that is no number", 'demand(number !== null, "a bound that is no number");', ""],
    ["1.6", "any number of constants", "[1, ENUM_MAX]", "[1, Infinity]"],
    ["1.6", "const and enum", 'demand(!members.has("const") || !members.has("enum"), "const and enum");', ""],
  ]),
  ...of("reward_checks.mjs", "checks.json", [
    ["1.6", "answers need not end", "Number(hasEnded && CHECKS", "Number(CHECKS"],
    ["1.6", "longer answers have ended", "hasEnded: hasEnded && isWhole", "hasEnded"],
    ["1.6", "longer answers are looked at", "strip(isWhole ? answer : cut(bytes))", "strip(answer)"],
    ["1.6", "white space counts", "const text = strip(isWhole", "const text = (isWhole"],
    ["1.6", "white space of fields counts", "text === strip(fill(parts, row))", "text === fill(parts, row)"],
    ["1.6", "an empty text is contained", 'wanted !== "" && ', ""],
    ["1.6", "a pattern within the answer", "`^(?:${fill(parts, row, quoted)})$`", "fill(parts, row, quoted)"],
    ["1.6", "a pattern without a group", "`^(?:${fill(parts, row, quoted)})$`", "`^${fill(parts, row, quoted)}$`"],
    ["1.6", "an answer is stripped, then cut", 'Buffer.from(answer, "utf8")', 'Buffer.from(strip(answer), "utf8")'],
    ["1.6", "constants are stripped", "? fill(each, row)", "? strip(fill(each, row))"],
    ["1.6", "all properties are required", "if (!required.every(", "if (![...required, ...properties.keys()].every("],
    ["1.6", "what is required is a property", ": isOpen));", ": isOpen || required.includes(name)));"],
    ["1.6", "a point of a field is any character", "replace(/[^\\w]/g", "replace(/[^\\w.]/g"],
    ["1.6", "a sum of rewards, not their mean", ", 0) / whole;", ", 0);"],
    ["1.6", "characters are UTF-16 units", "isWithin([...text].length, ends)", "isWithin(text.length, ends)"],
    ["1.6", "3.0 is no integer", '? ["number", "integer"] : ["number"]', '? ["integer"] : ["number"]'],
    ["1.6", "every object is open", "fits(each, properties.get(name), row) : isOpen", "fits(each, properties.get(name), row) : true"],
    ["1.6", "no member is required", "if (!required.every((name) => value.has(name))) return false;", ""],
  ]),
  ...of("reward.mjs", "checks.json", [
    ["1.6", "numbers with an exponent", "(?:\\.[0-9]+)?$/", "(?:\\.[0-9]+)?(?:e[0-9]+)?$/"],
  ]),
];
