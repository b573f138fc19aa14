// Runs vectors with one rule switched off: with modules of the reader in which a text is another one.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { faultOf } from "./vector_files.mjs";

const READER = fileURLToPath(new URL(".", import.meta.url));
const VECTORS = fileURLToPath(new URL("../vectors", import.meta.url));
const ENTRY = "vector_files.mjs"; // what a changed reader is entered by
const SLIPS = /^failed: (ReferenceError|SyntaxError|TypeError: .* is not a (function|constructor))/;

const names = (folder, end) => readdirSync(folder).filter((name) => name.endsWith(end));
const sources = new Map(names(READER, ".mjs").map((name) => [name, readFileSync(join(READER, name), "utf8")]));
const files = new Map(); // those that a run of switches uses

/** A vector file on which the reader agrees as it is, its slow cases last: most switches are noticed before. */
function quickFirst(name) {
  const file = JSON.parse(readFileSync(join(VECTORS, name), "utf8"));
  const timed = file.cases.map((testCase) => {
    const started = performance.now();
    const fault = faultOf(name, testCase, file);
    if (fault !== null) throw new Error(`without any switch: ${name}: ${testCase.name}: ${fault}`);
    return { testCase, took: performance.now() - started };
  });
  const sorted = timed.sort((one, other) => one.took - other.took);
  return { ...file, cases: sorted.map(({ testCase }) => testCase) };
}

/** The module, and all those that import it, directly or not. */
function affectedBy(module) {
  const affected = new Set([module]);
  for (const reached of affected) {
    for (const [name, source] of sources) if (source.includes(`"./${reached}"`)) affected.add(name);
  }
  return affected;
}

/** The module's source with the rule switched off. */
function changed({ module, edits }) {
  return edits.reduce((source, [text, instead]) => {
    const parts = source.split(text);
    if (parts.length !== 2) throw new Error(`${module} has ${parts.length - 1} times, not once: ${text}`);
    return parts.join(instead);
  }, sources.get(module));
}

/** The reader with a rule switched off: what `vector_files.mjs` exports. Unaffected modules are the usual ones. */
async function readerWith(each, folder) {
  const affected = affectedBy(each.module);
  for (const name of affected) {
    const source = name === each.module ? changed(each) : sources.get(name);
    const resolved = source.replaceAll(/"\.\/(\w+\.mjs)"/g, (text, other) =>
      affected.has(other) ? text : JSON.stringify(pathToFileURL(join(READER, other)).href),
    );
    writeFileSync(join(folder, name), resolved);
  }
  return import(pathToFileURL(join(folder, ENTRY)).href);
}

/** The first case that fails, or null: the file where it is expected comes first. */
function firstFault({ faultOf }, expectedIn) {
  const others = [...files.keys()].filter((name) => name !== expectedIn);
  for (const name of [expectedIn, ...others].filter((each) => files.has(each))) {
    const file = files.get(name);
    for (const testCase of file.cases) {
      const fault = faultOf(name, testCase, file);
      if (fault !== null) return { text: `${name}: ${testCase.name}`, fault };
    }
  }
  return null;
}

/** {text: the first vector that fails, isCaught}. */
async function verdictOn(each) {
  const folder = mkdtempSync(join(tmpdir(), "sfnode-switch-"));
  try {
    const found = firstFault(await readerWith(each, folder), each.vectors);
    if (found === null) return { text: "NOT NOTICED", isCaught: false };
    if (SLIPS.test(found.fault)) return { text: `BROKEN: ${found.fault.split("\n")[0]}`, isCaught: false };
    return { text: found.text, isCaught: true };
  } catch (error) {
    return { text: `BROKEN: ${error.message}`, isCaught: false };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Prints the table of these switches whose rule begins like one of `wanted`. isUsed: which vector files may notice.
 * Whether all are noticed.
 */
export async function runSwitches(switches, wanted, isUsed) {
  for (const name of names(VECTORS, ".json").filter(isUsed)) files.set(name, quickFirst(name));
  const isChosen = ({ rule }) => wanted.length === 0 || wanted.some((each) => rule.startsWith(each));
  const chosen = switches.filter(isChosen);
  let caught = 0;
  for (const each of chosen) {
    const { text, isCaught } = await verdictOn(each);
    caught += isCaught ? 1 : 0;
    console.log(`${each.rule} | ${each.off} | ${text}`);
  }
  console.log(`switches: ${caught} of ${chosen.length} are noticed by a vector`);
  return caught === chosen.length && caught > 0;
}
