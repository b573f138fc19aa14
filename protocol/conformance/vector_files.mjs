// Which functions the cases of each vector file call, and what is wrong with a case.

import { firstDifference } from "./differences.mjs";
import { ASKING } from "./vector_asking.mjs";
import { ATTESTATIONS } from "./vector_attestations.mjs";
import { AUDITS, LOGS } from "./vector_documents.mjs";
import { LEDGERS } from "./vector_ledgers.mjs";
import { LOSSES, VIEWS } from "./vector_learning.mjs";
import { ENVELOPES, MANIFESTS, MESSAGES, SYNC } from "./vector_messages.mjs";
import { MODELS } from "./vector_models.mjs";
import { ED25519, GENERATOR, HASHING, SCALARS, SUBSPACE } from "./vector_numbers.mjs";
import { REWARDS } from "./vector_rewards.mjs";
import { FRAMES, REACH, SESSIONS } from "./vector_sessions.mjs";
import { SNAPSHOTS } from "./vector_snapshots.mjs";
import { STATEMENTS } from "./vector_statements.mjs";
import { STRINGS } from "./vector_strings.mjs";
import { TOKENS } from "./vector_tokens.mjs";
import { TRACES } from "./vector_traces.mjs";

export const FUNCTIONS_BY_FILE = new Map([
  ["hashing.json", HASHING],
  ["generator.json", GENERATOR],
  ["subspace.json", SUBSPACE],
  ["scalars.json", SCALARS],
  ["losses.json", LOSSES],
  ["views.json", VIEWS],
  ["tokens.json", TOKENS],
  ["ed25519.json", ED25519],
  ["manifests.json", MANIFESTS],
  ["models.json", MODELS],
  ["checks.json", REWARDS],
  ["envelopes.json", ENVELOPES],
  ["messages.json", MESSAGES],
  ["frames.json", FRAMES],
  ["sessions.json", SESSIONS],
  ["reach.json", REACH],
  ["strings.json", STRINGS],
  ["ledgers.json", LEDGERS],
  ["statements.json", STATEMENTS],
  ["sync.json", SYNC],
  ["asking.json", ASKING],
  ["snapshots.json", SNAPSHOTS],
  ["attestations.json", ATTESTATIONS],
  ["audits.json", AUDITS],
  ["logs.json", LOGS],
  ["traces_steps.json", TRACES],
  ["traces_flood.json", TRACES],
  ["traces_sync.json", TRACES],
  ["traces_horizon.json", TRACES],
  ["traces_roster.json", TRACES],
  ["traces_end.json", TRACES],
  ["traces_snapshots.json", TRACES],
]);
const SHOWN_MAX = 400; // characters of a value in a report

/** Null, or what is wrong with a case of `file`, which lies in the file `name`, in words. */
export function faultOf(name, testCase, file) {
  const functions = FUNCTIONS_BY_FILE.get(name);
  const compute = Object.hasOwn(functions, testCase.function) ? functions[testCase.function] : undefined;
  if (compute === undefined) return `unknown function ${testCase.function}`;
  try {
    const found = compute(testCase.input, file, testCase.expected);
    const difference = firstDifference(testCase.expected, found);
    return difference === null ? null : describe(difference);
  } catch (error) {
    return `failed: ${error.stack}`;
  }
}

function describe({ path, expected, found }) {
  return `at ${path}\n    expected ${show(expected)}\n    found    ${show(found)}`;
}

function show(value) {
  return (JSON.stringify(value) ?? "nothing").slice(0, SHOWN_MAX);
}
