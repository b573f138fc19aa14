// From lines of data to prompts and candidates (SPEC 5.5). The tokenizer is given as a function from text to tokens.

import { parseJson } from "./json.mjs";
import { readRule } from "./reward.mjs";

const FIELD_NAME = /^[A-Za-z_\u{80}-\u{10FFFF}][0-9A-Za-z_\u{80}-\u{10FFFF}]*$/u;
const PART = /\{\{|\}\}|\{([^{}]*)\}|[^{}]+/y;
const WHITE = /^[\t-\r ]*$/;
const ROW_LENGTH_MAX = 2 ** 20;
const EXACT_MAX = 2 ** 53; // whole numbers, SPEC 1.6
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Data, or a task, that cannot be used. */
export class Unusable extends Error {}

function demand(condition, what) {
  if (!condition) throw new Unusable(what);
}

const isText = (value) => typeof value === "string" && value.isWellFormed();
const longest = (lists) => Math.max(0, ...lists.map((each) => each.length));
const comparedOf = (value) => {
  const isWhole = Number.isInteger(value) && Math.abs(value) <= EXACT_MAX;
  demand(isText(value) || isWhole, "neither a text nor a whole number");
  return String(value);
};
const withChoice = (row, choice) => new Map([...row, ["choice", choice]]);
const last = (tokens, count) => tokens.slice(Math.max(0, tokens.length - count));

/** LEAD, or null where the words are not set apart. */
function leadOf(words) {
  let size = 0;
  while (words.every((word) => word.length > size && word[size] === words[0][size])) size += 1;
  const following = new Set(words.filter((word) => word.length > size).map((word) => word[size]));
  return following.size === words.length ? words[0].slice(0, size) : null;
}

/** Parts of a template: {text} or {field}. */
function parseTemplate(template) {
  const parts = [];
  PART.lastIndex = 0;
  while (PART.lastIndex < template.length) {
    const found = PART.exec(template);
    demand(found !== null, "a brace alone");
    const [whole, field] = found;
    if (field === undefined) parts.push({ text: whole === "{{" || whole === "}}" ? whole[0] : whole });
    else parts.push({ field });
  }
  for (const { field } of parts.filter((part) => part.field !== undefined)) {
    demand(FIELD_NAME.test(field) && field !== "label" && field !== "choices", field);
  }
  return parts;
}

const fieldsOf = (parts) => parts.flatMap(({ field }) => (field === undefined ? [] : [field]));
const filled = (parts, row) => parts.map(({ text, field }) => text ?? row.get(field)).join("");
const countOf = (text) => [...text].length; // code points
const lengthOf = (parts, row) => parts.reduce((total, { text, field }) => total + countOf(text ?? row.get(field)), 0);

/** What a template ends with, after its last field or doubled brace. */
function tailOf(template) {
  return /(?:^|.*(?:\{\{|\}\}|\}))([^{}]*)$/s.exec(template)[1];
}

export class Encoder {
  #task;
  #t;
  #start;
  #end;
  #tail;
  #words = [];
  #prompt;
  #following;
  #rule = null;

  /** special: the tokens of "a" with the special ones. end: END, a list. */
  constructor(task, t, special, end) {
    this.#task = task;
    this.#t = t;
    this.#end = end;
    this.#start = special.slice(0, Math.max(0, special.indexOf(t("a")[0])));
    this.#prompt = parseTemplate(task.template);
    this.#tail = tailOf(task.template);
    if (task.kind === "reward") this.#rule = readRule(task.completion);
    this.#following = this.#rule === null ? parseTemplate(task.completion) : [];
    this.#checkTemplates();
    this.#words = this.#wordTokens();
  }

  #checkTemplates() {
    const { kind } = this.#task;
    const [prompt, following] = [fieldsOf(this.#prompt), fieldsOf(this.#following)];
    if (kind === "classification" || kind === "reward") demand(prompt.length > 0, "no field");
    if (kind === "completion") demand(following.length > 0, "no field");
    if (kind === "choice") demand(following.includes("choice"), "no choice");
    demand(!prompt.includes("choice") && (kind === "choice" || !following.includes("choice")), "a choice");
  }

  #wordTokens() {
    const { label_words: words } = this.#task;
    const found = words.map((word) => this.#after(word));
    demand(found.every((each) => each.length > 0), "a word without a token");
    demand(new Set(found.map(String)).size === found.length, "equal words");
    return found;
  }

  /** f of the specification. */
  #after(text) {
    const before = this.#t(`a${this.#tail}`);
    const whole = this.#t(`a${this.#tail}${text}`);
    const isAfter = this.#task.template !== "" && String(whole.slice(0, before.length)) === String(before);
    return isAfter ? whole.slice(before.length) : this.#t(text);
  }

  /** WORDS. */
  get words() {
    return this.#words;
  }

  // --- rows

  #rowOf(line) {
    let row;
    try {
      row = parseJson(line, { isBounded: true });
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new Unusable(error.message);
    }
    demand(row instanceof Map, "no object");
    const named = [...fieldsOf(this.#prompt), ...fieldsOf(this.#following)].filter((name) => name !== "choice");
    for (const name of named) demand(isText(row.get(name)), name);
    return row;
  }

  #labelOf(row, count) {
    const label = row.get("label");
    demand(Number.isInteger(label) && label >= 0 && label < count, "label");
    return label;
  }

  #choicesOf(row) {
    const choices = row.get("choices");
    demand(Array.isArray(choices) && choices.length >= 2 && choices.every(isText), "choices");
    return choices;
  }

  /** Of one line. */
  examples(line) {
    const row = this.#rowOf(line);
    this.#checkLength(row);
    const prompt = filled(this.#prompt, row);
    switch (this.#task.kind) {
      case "completion":
        return this.#completions(prompt, filled(this.#following, row));
      case "reward":
        return this.#question(prompt, row);
      case "choice": {
        const choices = this.#choicesOf(row);
        const texts = choices.map((choice) => filled(this.#following, withChoice(row, choice)));
        return this.#chosen(prompt, texts.map((text) => this.#after(text)), this.#labelOf(row, choices.length));
      }
      default: {
        const lead = leadOf(this.#words);
        const label = this.#labelOf(row, this.#words.length);
        return lead === null ? this.#chosen(prompt, this.#words, label) : this.#chosen(prompt, [], label, lead);
      }
    }
  }

  /** Before anything is filled in. */
  #checkLength(row) {
    const choices = this.#task.kind === "choice" ? this.#choicesOf(row) : [""];
    const texts = choices.map((choice) => lengthOf(this.#following, withChoice(row, choice)));
    const compared = (this.#rule?.fields ?? []).map((field) => countOf(comparedOf(row.get(field))));
    const length = [lengthOf(this.#prompt, row), ...texts, ...compared].reduce((total, each) => total + each, 0);
    demand(length <= ROW_LENGTH_MAX, "too long");
  }

  #chosen(prompt, candidates, label, lead = []) {
    const body = this.#t(prompt);
    const room = this.#task.max_tokens - this.#start.length - longest([lead, ...candidates]);
    demand(room >= (body.length > 0 ? 1 : 0), "no room");
    const tokens = [...this.#start, ...last(body, room), ...lead];
    this.#checkPredicted(tokens, candidates);
    return [{ prompt: tokens, candidates, label }];
  }

  #checkPredicted(tokens, candidates) {
    const shortest = candidates.length === 0 ? 1 : Math.min(...candidates.map((each) => each.length));
    demand(shortest > 0 && tokens.length + shortest > 1, "nothing to predict");
  }

  #question(prompt, row) {
    const body = this.#t(prompt);
    const { answer, tokens } = this.#rule;
    const room = this.#task.max_tokens - this.#start.length - tokens;
    demand(body.length > 0 && room > 0, "no room");
    const parts = answer?.map((part) => (typeof part === "string" ? part : comparedOf(row.get(part.field))));
    const texts = answer === null ? [] : [parts.join("")];
    const candidates = texts.map((text) => [...this.#after(text), ...this.#end].slice(0, tokens));
    demand(candidates.every((each) => each.length > 0), "no token");
    return [{ prompt: [...this.#start, ...last(body, room)], candidates, label: 0 }];
  }

  #completions(prompt, text) {
    const [body, y, most] = [this.#t(prompt), this.#after(text), this.#task.max_tokens];
    this.#checkPredicted([...this.#start, ...body], [y]);
    if (this.#task.template === "") return this.#pieces(y, most - this.#start.length);
    const kept = y.slice(0, most - Math.min(this.#start.length + body.length, Math.floor(most / 2)));
    const before = last(body, most - this.#start.length - kept.length);
    return [{ prompt: [...this.#start, ...before], candidates: [kept], label: 0 }];
  }

  #pieces(y, room) {
    const overlap = this.#start.length > 0 ? 0 : 1;
    const made = [];
    for (let start = 0; start < Math.max(1, y.length - overlap); start += room - overlap) {
      made.push({ prompt: this.#start, candidates: [y.slice(start, start + room)], label: 0 });
    }
    return made;
  }
}

/** All examples of the data; Unusable. */
export function examplesOf(encoder, data) {
  let text;
  try {
    text = UTF8.decode(data);
  } catch {
    throw new Unusable("no UTF-8");
  }
  const lines = text.split(/\r\n|\r|\n/).filter((line) => !WHITE.test(line));
  const found = lines.flatMap((line) => encoder.examples(line));
  demand(found.length > 0, "no example");
  return found;
}
