// Checks every case of every file of ../vectors. Usage: node protocol/conformance/run.mjs [FOLDER]
// Exit code 1 on any disagreement, and on a file or function that is not known here or is missing there.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { FUNCTIONS_BY_FILE, faultOf } from "./vector_files.mjs";

/** {passed, total} of one file; faults are printed. */
function checkFile(folder, name) {
  const file = JSON.parse(readFileSync(join(folder, name), "utf8"));
  let passed = 0;
  for (const testCase of file.cases) {
    const fault = faultOf(name, testCase, file);
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
