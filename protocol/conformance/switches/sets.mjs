// How each rule about ledger, digests and statements is switched off (SPEC 7).

import { of } from "./table.mjs";

const LEDGER = [
  ...of("ledger.mjs", "ledgers.json", [
    [
      "7.1.1 ALREADY_HELD",
      "an equal payload is a second one",
      'if (slot.payload.equals(envelope.payload)) return "ALREADY_HELD";',
    ],
    [
      "7.1.1 ALREADY_HELD",
      "a signature makes it another one",
      "slot.payload.equals(envelope.payload)",
      "slot.payload.equals(envelope.payload) && slot.records[0].subarray(-64).equals(envelope.signature)",
    ],
    ["7.2", "the first payload goes on counting", "payload: null, isVoid: true,", "payload: removed, isVoid: false,"],
    [
      "7.2.1 SLOT_VOID",
      "a third version is judged again",
      'if (slot.isVoid) return "SLOT_VOID";',
      "if (slot.isVoid) return null;",
    ],
    ["7.3.3 TOO_EARLY", "no horizon", 'if (envelope.step > horizon) return "TOO_EARLY";'],
    ["7.3.3 TOO_EARLY", "the horizon itself is beyond it", "envelope.step > horizon", "envelope.step >= horizon"],
    [
      "7.3.3 TOO_EARLY",
      "the horizon concerns slots that hold something",
      "barred !== null || slot !== undefined",
      "barred !== null || (slot !== undefined && envelope.step <= horizon)",
    ],
    ["7.3.4 AUTHORS_FULL", "any number of authors", "< this.#run.manifest.authors_max", "< 65536"],
    ["7.3.4 AUTHORS_FULL", "no further slot of an author who is there", "return this.holdsAnyOf(author) || ", "return "],
  ]),
  ...of("statements.mjs", "statements.json", [
    ["7.3.1 EXCLUDED", "excluded authors count", 'if (step >= this.excludedFrom(author)) return "EXCLUDED";'],
    [
      "7.3.1 EXCLUDED",
      "the step of an exclusion counts",
      "step >= this.excludedFrom(author)) return",
      "step > this.excludedFrom(author)) return",
    ],
    ["7.3.2 NOT_ADMITTED", "everybody is admitted", "isListed && !this.isAdmitted(author)", "false"],
  ]),
  ...of("coefficients.mjs", "ledgers.json", [
    ["7.4", "the run id is left out", '"sfnode/state/1", [this.#run.runId, ...fields]', '"sfnode/state/1", fields'],
    ["7.4", "epochs of zeros", "flat.some((value) => value !== 0)", "flat.length > 0"],
    ["7.4", "big-endian", "bytes.writeBigInt64LE(", "bytes.writeBigInt64BE("],
  ]),
  ...of("digests.mjs", "ledgers.json", [
    ["7.5", "groups of 32 steps", "const GROUP_STEPS = 16;", "const GROUP_STEPS = 32;"],
    [
      "7.5",
      "void slots by their payload",
      "slots.get(step).isVoid ? u32(step)",
      "slots.get(step).isVoid ? Buffer.alloc(0)",
    ],
    ["7.5", "no chain", "[groups[group], slot]", "[EMPTY_GROUP, slot]"],
    [
      "7.5",
      "empty groups are left out",
      "Buffer.concat(groups)",
      "Buffer.concat(groups.filter((group) => group !== EMPTY_GROUP))",
    ],
    ["7.5", "the span is not in the bucket", "[u32(span), author, ", "[author, "],
    ["7.5", "authors by arrival", "ascendingBytes(buckets)", "[...buckets].reverse()"],
    ["7.5", "shards by key", 'hashFields("sfnode/author/1", author)[0]', "author[0]"],
    ["7.5", "the shard's number is left out", "[Buffer.of(shard), digest]", "[digest]"],
    ["7.5", "the span's number is left out", "[u32(span), digest]", "[digest]"],
    ["7.5", "the run id is left out", "[runId, ...fields, ...statements]", "[...fields, ...statements]"],
    ["7.5", "the payload hash of 16 bytes", "subarray(0, 8)", "subarray(0, 16)"],
  ]),
  ...of("digests.mjs", "statements.json", [
    ["7.5", "statements are in no root", "[runId, ...fields, ...statements]", "[runId, ...fields]"],
  ]),
  ...of("ledger.mjs", "statements.json", [
    [
      "7.5",
      "zeros in the root of an empty roster",
      "this.roster.isEmpty ? [] : [this.roster.digest()]",
      "[this.roster.digest()]",
    ],
  ]),
];

const STATEMENTS = [
  ...of("statements.mjs", "statements.json", [
    [
      "7.5",
      "an exclusion without its step",
      "kind === EXCLUSION ? u32(step) :",
      "kind === EXCLUSION ? Buffer.alloc(0) :",
    ],
    ["7.5", "a void token by its authors", "isVoid(held) || kind === ADMISSION", "kind === ADMISSION"],
    ["7.5", "authors of a token by arrival", "authorsOf(held).sort(Buffer.compare)", "authorsOf(held)"],
    ["7.7", "the claim's author is not signed", "[CLAIM_TAG, runId, token, author]", "[CLAIM_TAG, runId, token]"],
    ["7.7", "the run id is not signed", "[OWNER_TAG, runId, data", "[OWNER_TAG, data"],
    ["7.7.1 STATEMENT_FORMAT", "kinds of other runs", "const isKnown = KINDS[manifest.admission.kind]", "const isKnown = KINDS.invite"],
    ["7.7.1 STATEMENT_FORMAT", "any length", "&& data.length === LENGTHS[kind];", "&& data.length >= 97;"],
    ["7.7.2 STATEMENT_FORMAT", "an exclusion from beyond the end", "step < manifest.steps", "true"],
    ["7.7.3 AUTHOR_KEY", "any key", 'rejectUnless(keys.every(isValidAuthorKey), "AUTHOR_KEY");'],
    [
      "7.7.3 AUTHOR_KEY",
      "any token",
      "[author, token].filter((key) => key !== null)",
      "[author].filter((key) => key !== null)",
    ],
    ["7.7.4 STATEMENT_SIGNATURE", "the owner did not sign", "verify(owner, signed, signature)", "true"],
    ["7.7.4 STATEMENT_SIGNATURE", "the token did not sign", "verify(token, claimed, data.subarray(129))", "true"],
    [
      "7.7.5 ALREADY_HELD",
      "a statement is taken twice",
      'return isOld[kind]() ? "ALREADY_HELD" : null;',
      "return null;",
    ],
    [
      "7.7.5 ALREADY_HELD",
      "a later exclusion replaces an earlier one",
      "held[0].step <= step",
      "held[0].step === step",
    ],
    ["7.7.5 ALREADY_HELD", "a further claim of a void token", "isVoid(held) || held.some", "held.some"],
    ["7.7.1 STATEMENT_FORMAT", "a token for more than 100", "byte < CLAIM + TOKEN_USES_MAX ? CLAIM", "true ? CLAIM"],
    ["7.7", "every token is for one", "uses: data[0] - CLAIM + 1", "uses: 1"],
    ["7.7.6 STATEMENTS_FULL", "any number of statements", "this.#held.size >= this.statementsMax", "false"],
    [
      "7.7.6 STATEMENTS_FULL",
      "a full roster takes nothing",
      "if (held.length === 0) return this.#held.size >= this.statementsMax",
      "if (held.length === 0 || this.#held.size >= this.statementsMax) return this.#held.size >= this.statementsMax",
    ],
    [
      "7.7",
      "a claim takes the place of another",
      "statement.kind === CLAIM ? [...held, statement] : [statement]",
      "[statement]",
    ],
    ["7.7", "a void token admits", "!isVoid(held) && [ADMISSION", "[ADMISSION"],
    ["7.7", "a claim admits nobody", "[ADMISSION, CLAIM].includes(held[0].kind)", "held[0].kind === ADMISSION"],
  ]),
  ...of("ledger.mjs", "statements.json", [
    [
      "7.7",
      "what is excluded stays",
      "const isLeft = ([step]) => this.roster.leaves(author, step);",
      "const isLeft = () => true;",
    ],
    ["7.7", "records of those who are not admitted any more are lost", "this.#suspend(name, dropped);", ";"],
    [
      "7.7",
      "suspended records do not come back",
      "if (this.roster.isAdmitted(author)) this.#bringBack(author, coefficients);",
    ],
  ]),
];

export const SWITCHES_OF_SETS = [...LEDGER, ...STATEMENTS];
