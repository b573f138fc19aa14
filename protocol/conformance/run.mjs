// Checks every case of every file of ../vectors. Usage: node protocol/conformance/run.mjs [FOLDER]
// Exit code 1 on any disagreement, and on a file or function that is not known here or is missing there.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { firstDifference } from "./differences.mjs";
import { LEDGERS } from "./vector_ledgers.mjs";
import { ENVELOPES, MANIFESTS, MESSAGES, SYNC } from "./vector_messages.mjs";
import { MODELS } from "./vector_models.mjs";
import { ED25519, GENERATOR, HASHING, SCALARS, SUBSPACE } from "./vector_numbers.mjs";
import { SNAPSHOTS } from "./vector_snapshots.mjs";
import { STATEMENTS } from "./vector_statements.mjs";
import { TRACES } from "./vector_traces.mjs";

const FUNCTIONS_BY_FILE = new Map([
  ["hashing.json", HASHING],
  ["generator.json", GENERATOR],
  ["subspace.json", SUBSPACE],
  ["scalars.json", SCALARS],
  ["ed25519.json", ED25519],
  ["manifests.json", MANIFESTS],
  ["models.json", MODELS],
  ["envelopes.json", ENVELOPES],
  ["messages.json", MESSAGES],
  ["ledgers.json", LEDGERS],
  ["sync.json", SYNC],
  ["statements.json", STATEMENTS],
  ["snapshots.json", SNAPSHOTS],
  ["traces_steps.json", TRACES],
  ["traces_sync.json", TRACES],
  ["traces_roster.json", TRACES],
  ["traces_snapshots.json", TRACES],
  ["traces_horizon.json", TRACES],
  ["traces_end.json", TRACES],
  ["traces_flood.json", TRACES],
]);
const SHOWN_MAX = 400; // characters of a value in a report

/** Null, or what is wrong with a case, in words. */
function faultOf(functions, testCase, file) {
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

/** {passed, total} of one file; faults are printed. */
function checkFile(folder, name) {
  const functions = FUNCTIONS_BY_FILE.get(name);
  const file = JSON.parse(readFileSync(join(folder, name), "utf8"));
  let passed = 0;
  for (const testCase of file.cases) {
    const fault = faultOf(functions, testCase, file);
    if (fault === null) passed += 1;
    else console.log(`${name}: ${testCase.function}: ${testCase.name}: ${fault}`);
  }
  console.log(`${name}: ${passed} of ${file.cases.length}`);
  return { passed, total: file.cases.length };
}

/** Files that only one side knows. */
function strayFiles(names) {
  const unknown = names.filter((name) => !FUNCTIONS_BY_FILE.has(name)).map((name) => `${name}: unknown file`);
  const missing = [...FUNCTIONS_BY_FILE.keys()].filter((name) => !names.includes(name));
  return [...unknown, ...missing.map((name) => `${name}: missing`)];
}

function main(folder) {
  const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
  const strays = strayFiles(names);
  for (const stray of strays) console.log(stray);
  const known = names.filter((name) => FUNCTIONS_BY_FILE.has(name));
  const results = known.map((name) => checkFile(folder, name));
  const sum = (member) => results.reduce((total, result) => total + result[member], 0);
  const [passed, total] = [sum("passed"), sum("total")];
  const digits = (number) => number.toLocaleString("en-GB");
  console.log(`conformance: ${digits(passed)} of ${digits(total)} vectors agree (${results.length} files)`);
  process.exitCode = passed === total && total > 0 && strays.length === 0 ? 0 : 1;
}

main(process.argv[2] ?? fileURLToPath(new URL("../vectors", import.meta.url)));
