// Types and bounds of the manifest's fields (SPEC 1.1): from parsed JSON to plain objects. Rejects MANIFEST_FIELD.

import { rejectUnless } from "./verdicts.mjs";

function demand(condition, path, what) {
  rejectUnless(condition, "MANIFEST_FIELD", `${path}: ${what}`);
}

function integer(low, high) {
  return (value, path) => {
    demand(typeof value === "number" && value >= low && value <= high, path, `no integer in ${low}...${high}`);
    return value;
  };
}

function text(low, high) {
  return (value, path) => {
    demand(typeof value === "string" && value.isWellFormed(), path, "no text");
    const length = [...value].length; // code points
    demand(length >= low && length <= high, path, `length not in ${low}...${high}`);
    return value;
  };
}

function choice(...values) {
  return (value, path) => {
    demand(values.includes(value), path, `none of ${values}`);
    return value;
  };
}

function lowerHex64(value, path) {
  demand(typeof value === "string" && /^[0-9a-f]{64}$/.test(value), path, "no 64 lower-case hex digits");
  return value;
}

function list(low, high, item) {
  return (value, path) => {
    demand(Array.isArray(value) && value.length >= low && value.length <= high, path, `no list of ${low}...${high}`);
    return value.map((member, index) => item(member, `${path}[${index}]`));
  };
}

function object(fields) {
  const names = Object.keys(fields);
  return (value, path) => {
    demand(value instanceof Map, path, "no object");
    const hasAll = value.size === names.length && names.every((name) => value.has(name));
    demand(hasAll, path, "a field is unknown or missing");
    return Object.fromEntries(names.map((name) => [name, fields[name](value.get(name), `${path}.${name}`)]));
  };
}

const file = object({ name: text(1, 256), bytes: integer(0, 2 ** 40), sha256: lowerHex64, pieces: lowerHex64 });

const MANIFEST = object({
  format: choice(6),
  name: text(1, 256),
  owner: lowerHex64,
  model: object({
    id: text(1, 256),
    revision: text(0, 256),
    content: lowerHex64,
    config: file,
    weights: list(1, 1024, file),
    tokenizer: list(1, 64, file),
    sharing: choice("peers", "none"),
  }),
  tensors: list(
    1,
    8192,
    object({
      name: text(1, 256),
      kind: choice("matrix", "transposed", "vector"),
      rows: integer(1, 2 ** 24),
      cols: integer(0, 2 ** 24),
    }),
  ),
  task: object({
    kind: choice("classification", "choice", "completion", "reward"),
    template: text(0, 4096),
    completion: text(0, 4096),
    label_words: list(0, 256, text(1, 256)),
    objective: choice("loss", "accuracy", "f1"),
    data: text(1, 256),
    data_sha256: text(0, 64),
    max_tokens: integer(4, 65536),
    batch_rows: integer(1, 65536),
  }),
  method: object({
    rank: integer(1, 128),
    epoch_steps: integer(1, 2 ** 20),
    basis_sha256: text(0, 64),
    core_rows: integer(0, 128),
    noise_rows: integer(0, 65536),
    energy_max: integer(0, 2 ** 14 * 127 ** 2),
    core: choice("canonical", "rademacher", "dense"),
    scalar: choice("raw", "normalised"),
    epsilon_exp: integer(-30, 0),
    sides: integer(1, 2),
    directions: integer(1, 256),
    shares: integer(1, 256),
    local_steps: integer(1, 64),
    alpha_exp: integer(-60, 0),
    quantum_exp: integer(-40, 10),
    clip: integer(1, 32767),
  }),
  schedule: object({
    kind: choice("constant", "linear"),
    weight_start: integer(1, 65536),
    weight_end: integer(0, 65536),
  }),
  steps: integer(1, 2 ** 20),
  staleness: integer(0, 64),
  admission: object({ kind: choice("open", "allow-list", "invite"), pow_bits: integer(0, 32) }),
  authors_max: integer(1, 65536),
});

/** The manifest as a plain object. */
export function readFields(parsed) {
  return MANIFEST(parsed, "manifest");
}
