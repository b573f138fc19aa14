// How each rule about manifests, keys and records is switched off (SPEC 1, 2, 6).

import { of } from "./table.mjs";

export const SWITCHES_OF_RUNS = [
  ...of("manifest_fields.mjs", "manifests.json", [
    [
      "1.1",
      "integers have no bound",
      'typeof value === "number" && value >= low && value <= high',
      'typeof value === "number"',
    ],
    ["1.1", "true is an integer", 'typeof value === "number" && value >= low', "value >= low"],
    ["1.1", "texts count UTF-16 units", "[...value].length; // code points", "value.length;"],
    ["1.1", "half of a surrogate pair is text", " && value.isWellFormed()"],
    ["1.1", "any word is a choice", "demand(values.includes(value), path", "demand(true, path"],
    [
      "1.1",
      "lists have no bound",
      "Array.isArray(value) && value.length >= low && value.length <= high",
      "Array.isArray(value)",
    ],
  ]),
  ...of("json.mjs", "manifests.json", [
    ["1.2", "keys are not sorted", "Object.keys(value).sort()", "Object.keys(value).reverse()"],
    ["1.2", "no short escapes", "SHORT_ESCAPES[unit] ?? "],
    ["1.2", "other characters stay as they are", '["\\\\]|[^ -~]', '["\\\\]|[\\0-\\x1f]'],
  ]),
  ...of("manifest.mjs", "manifests.json", [
    ["1.2", "another tag in the run id", '"sfnode/run/1"', '"sfnode/run/2"'],
    ["1.3.1 SIZE", "a manifest of any length", "bytes.length <= SIGNED_BYTES_MAX", "true"],
    [
      "1.3.2 MANIFEST_FORMAT",
      "a second line of any length",
      "isTwoLines && bytes.length - first - 2 === SIGNATURE_LINE_BYTES",
      "isTwoLines",
    ],
    ["1.3.2 MANIFEST_FORMAT", "what follows does not matter", " === bytes.length - 1;", " > first;"],
    ["1.3.2 MANIFEST_FORMAT", "bytes that are no UTF-8", "fatal: true", "fatal: false"],
    ["1.3.3 MANIFEST_FORMAT", "other formats are fields", "!isOtherFormat", "true"],
  ]),
  ...of("manifest_fields.mjs", "manifests.json", [
    ["1.3.4 MANIFEST_FIELD", "unknown fields are passed over", "value.size === names.length && "],
  ]),
  ...of("manifest.mjs", "manifests.json", [
    ["1.3.4 MANIFEST_FIELD", "the rules of 1.4", "  checkRules(manifest);\n"],
    ["1.3.5 MANIFEST_FORMAT", "another spelling of the first line", "canonical.equals(line)", "true"],
    ["1.3.5 MANIFEST_FORMAT", "capital letters in the signature", "/^[0-9a-f]{128}$/", "/^[0-9a-f]{128}$/i"],
    [
      "1.3.6 MANIFEST_SIGNATURE",
      "any signature will do",
      'verify(Buffer.from(run.manifest.owner, "hex"), signed, signature)',
      "true",
    ],
    ["1.3.6 MANIFEST_SIGNATURE", "the run id is not signed", "[SIGNING_TAG, run.runId]", "[SIGNING_TAG]"],
  ]),
  ...of("manifest_rules.mjs", "manifests.json", [
    ["1.4.1 MANIFEST_FIELD", "any owner's key", 'demand(isValidAuthorKey(Buffer.from(owner, "hex")), 1);'],
    ["1.4.1 MANIFEST_FIELD", "any hash of the data", 'demand(digest === "" || LOWER_HEX_64.test(digest), 1);'],
  ]),
  ...of("manifest_fields.mjs", "manifests.json", [
    ["1.4.1 MANIFEST_FIELD", "any hash of a file", "/^[0-9a-f]{64}$/.test(value)", "value.length === 64"],
  ]),
  ...of("manifest_rules.mjs", "manifests.json", [
    ["1.4.2 MANIFEST_FIELD", "separators in file names", "!FORBIDDEN_IN_FILE_NAMES.test(name)", "true"],
    ["1.4.2 MANIFEST_FIELD", "a file called ..", 'name !== ".." && '],
    ["1.4.2 MANIFEST_FIELD", "a file called .", 'name !== "." && '],
    [
      "1.4.3 MANIFEST_FIELD",
      "tensors of one name",
      "new Set(tensors.map(({ name }) => name)).size === tensors.length",
      "true",
    ],
    [
      "1.4.3 MANIFEST_FIELD",
      "columns of a vector",
      '(kind === "vector") === (cols === 0)',
      'kind === "vector" || cols > 0',
    ],
    [
      "1.4.3 MANIFEST_FIELD",
      "a matrix without columns",
      '(kind === "vector") === (cols === 0)',
      'kind === "matrix" || cols === 0',
    ],
    ["1.4.4 MANIFEST_FIELD", "any rank", "demand(Number.isInteger(Math.log2(rank)), 4);"],
    ["1.4.5 MANIFEST_FIELD", "any number of scalars", "demand(directions * localSteps <= SCALARS_MAX, 5);"],
    ["1.4.5 MANIFEST_FIELD", "steps that are no whole rounds", "steps % localSteps === 0 && "],
    ["1.4.5 MANIFEST_FIELD", "rounds across epochs", " && method.epoch_steps % localSteps === 0"],
    ["1.4.5 MANIFEST_FIELD", "directions that cannot be shared out", "directions % shares === 0 && "],
    ["1.4.5 MANIFEST_FIELD", "rows that cannot be shared out", " && (task.batch_rows * shares) % directions === 0"],
    ["1.4.6 MANIFEST_FIELD", "one normalised direction", "directions >= 2 && method.clip", "method.clip"],
    [
      "1.4.6 MANIFEST_FIELD",
      "another clip of normalised scalars",
      "directions >= 2 && method.clip === 127",
      "directions >= 2",
    ],
    ["1.4.7 MANIFEST_FIELD", "a hash of a random basis", 'digest === "" && unitExponent', "unitExponent"],
    ["1.4.7 MANIFEST_FIELD", "a unit of a random basis", "unitExponent === 0 && largest === 1", "largest === 1"],
    [
      "1.4.7 MANIFEST_FIELD",
      "large entries of a random basis",
      "unitExponent === 0 && largest === 1",
      "unitExponent === 0",
    ],
    [
      "1.4.7 MANIFEST_FIELD",
      "no hash of a published basis",
      "LOWER_HEX_64.test(digest) && basisFileBytes",
      "basisFileBytes",
    ],
    ["1.4.7 MANIFEST_FIELD", "a basis of any size", " && basisFileBytes(manifest) <= BASIS_BYTES_MAX"],
    ["1.4.8 MANIFEST_FIELD", "public data without a hash", 'demand((digest === "") === (data === "private"), 8);'],
    [
      "1.4.9 MANIFEST_FIELD",
      "work in a run that is not open",
      'manifest.admission.kind === "open" || manifest.admission.pow_bits === 0',
      "true",
    ],
    ["1.4.10 MANIFEST_FIELD", "any number of coefficients", "coefficientCount(manifest) <= COEFFICIENTS_MAX", "true"],
    [
      "1.4.11 MANIFEST_FIELD",
      "coefficients beyond 2^53",
      "coefficientBound(manifest) < 2n ** 53n",
      "coefficientBound(manifest) < 2n ** 99n",
    ],
    [
      "1.4.12 MANIFEST_FIELD",
      "one label word, or one of a choice",
      "isClassification ? labelWords.length >= 2 : labelWords.length === 0",
      "true",
    ],
    [
      "1.4.12 MANIFEST_FIELD",
      "a completion where there is none, or none",
      '(completion === "") === isClassification',
      "true",
    ],
    ["1.4.12 MANIFEST_FIELD", "a metric of completions", 'kind !== "completion" || objective === "loss"', "true"],
    ["1.4.13 MANIFEST_FIELD", "any number of cores", "cores <= CORES_MAX", "true"],
    ["1.4.13 MANIFEST_FIELD", "Rademacher cores of any size", "cores * method.rank ** 2 <= CORE_PRODUCTS_MAX", "true"],
  ]),
  ...of("manifest_rules.mjs", "manifests.json", [
    ["1.4.2 MANIFEST_FIELD", "any name of the model's configuration", "[model.config, ...model.weights", "[...model.weights"],
  ]),
  ...of("model.mjs", "models.json", [
    [
      "1.5",
      "names by their UTF-16 units",
      "Buffer.compare(one.bytes, other.bytes)",
      "(one.name < other.name ? -1 : 1)",
    ],
    ["1.5", "tensors in the order of a file", "  named.sort((one, other) => Buffer.compare(one.bytes, other.bytes));\n"],
    ["1.5", "shapes are not in the content", "    Buffer.concat(shape.map(u32)),\n"],
    ["1.5", "names are not in the content", "    bytes,\n    Buffer", "    Buffer"],
    ["1.5", "big-endian values", "writeFloatLE", "writeFloatBE"],
    ["1.5", "pieces of 2^19 bytes", "2 ** 20", "2 ** 19"],
    ["1.5", "the piece list itself, not its hash", "sha256(Buffer.concat(digests))", "Buffer.concat(digests)"],
  ]),
  ...of("hashing.mjs", "hashing.json", [
    ["2.1", "no lengths between the fields", "  hash.update(u32(field.length));\n"],
    ["2.2", "the last 8 bytes", "readBigUInt64BE(0)", "readBigUInt64BE(24)"],
    ["2.2", "a seed for all steps", "runId, author, u32(firstStep)", "runId, author, u32(0)"],
    ["2.2", "a seed for all authors", "runId, author, u32(firstStep)", "runId, u32(firstStep)"],
  ]),
  ...of("ed25519.mjs", "ed25519.json", [
    [
      "2.3.1",
      "S is taken modulo L",
      " || decodeScalar(signature.subarray(32)) >= GROUP_ORDER",
      "",
      "message, handle, signature)",
      "message, handle, reduced(signature))",
      "function secretHandle(",
      "function reduced(signature) {\n" +
        "  const scalar = (decodeScalar(signature.subarray(32)) % GROUP_ORDER).toString(16).padStart(64, '0');\n" +
        "  return Buffer.concat([signature.subarray(0, 32), Buffer.from(scalar, 'hex').reverse()]);\n" +
        "}\n\nfunction secretHandle(",
    ],
    [
      "2.3.2",
      "other spellings of a key (without rule 3 for them: nobody can sign for the rest)",
      "key.length === 32 && isCanonical(key)",
      "key.length === 32",
      " || hasSmallOrder(point)",
      " || (isCanonical(key) && hasSmallOrder(point))",
    ],
    ["2.3.3", "keys of small order verify", " || hasSmallOrder(point)"],
    ["2.3.3", "R of small order", "return !hasSmallOrder(commitment);", "return true;"],
    ["2.3.4", "the equation", " || !opensslVerify(null, message, handle, signature)"],
    ["2.3", "author keys outside the subgroup", "isAuthor: isInPrimeSubgroup(point)", "isAuthor: true"],
  ]),
  ...of("statements.mjs", "statements.json", [
    ["2.4", "work that serves every run", '"sfnode/work/1", runId, author', '"sfnode/work/1", author'],
    ["2.4", "whole zero bytes", "byte.toString(2).padStart(8", "byte.toString(2).padStart(1"],
  ]),
  ...of("envelope.mjs", "envelopes.json", [
    ["6.1", "little-endian scalars", "payload.readInt16BE(", "payload.readInt16LE("],
    ["6.1", "the run id is not signed", "[SIGNING_TAG, runId, payload]", "[SIGNING_TAG, payload]"],
    ["6.1.1 SIZE", "half a record at the end", "data.length % size === 0", "true"],
    ["6.2.1 SIZE", "a record of another length", "record.length === recordBytes(manifest)", "record.length > 108"],
    ["6.2.2 STEP_RANGE", "steps beyond the end", "envelope.step < steps", "true"],
    ["6.2.2 STEP_ALIGNMENT", "steps within a round", "envelope.step % method.local_steps === 0", "true"],
    ["6.2.3 SCALAR_RANGE", "scalars beyond the clip", "Math.abs(q) <= method.clip", "true"],
    ["6.2.3 SCALAR_ENERGY", "any energy", 'method.scalar === "normalised"', "false"],
    ["6.2.4 SEED", "any seed", "envelope.seed === seedOf(run.runId, envelope.author, envelope.step)", "true"],
    ["6.2.5 AUTHOR_KEY", "any key", "isValidAuthorKey(envelope.author)", "true"],
  ]),
  ...of("envelope.mjs", "statements.json", [
    ["6.2.5 AUTHOR_WORK", "no work", "hasWork(run, envelope.author)", "true"],
  ]),
  ...of("envelope.mjs", "envelopes.json", [
    ["6.2.6 SIGNATURE", "any signature", "verify(envelope.author, signed, envelope.signature)", "true"],
  ]),
  ...of("ledger.mjs", "ledgers.json", [
    [
      "6.2",
      "the signature before the ledger is asked",
      "const reason = this.#ignoreReason(envelope, horizon);",
      "checkCostlyRules(this.#run, envelope);\n      const reason = this.#ignoreReason(envelope, horizon);",
    ],
  ]),
];
