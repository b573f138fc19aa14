// Runs the vectors with one rule switched off: with modules of the reader in which a text is another one.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { firstDifference } from "./differences.mjs";

const READER = fileURLToPath(new URL(".", import.meta.url));
const VECTORS = fileURLToPath(new URL("../vectors", import.meta.url));
const ENTRY = "vector_traces.mjs"; // what a changed reader is entered by
const SLIPS = /^(ReferenceError|SyntaxError|TypeError: .* is not a (function|constructor|iterable))/;

const names = (folder, end) => readdirSync(folder).filter((name) => name.endsWith(end));
const sources = new Map(names(READER, ".mjs").map((name) => [name, readFileSync(join(READER, name), "utf8")]));
const files = new Map(
  names(VECTORS, ".json")
    .filter((name) => name.startsWith("traces_"))
    .map((name) => [name, JSON.parse(readFileSync(join(VECTORS, name), "utf8"))]),
);

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

/** The reader with a rule switched off. Modules that do not depend on the changed one are the usual ones. */
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

/** The first trace that fails, or null: those of the file where it is expected come first. */
function firstFault({ TRACES }, expectedIn) {
  const others = [...files.keys()].filter((name) => name !== expectedIn);
  for (const name of [expectedIn, ...others].filter((each) => files.has(each))) {
    const file = files.get(name);
    const failed = file.cases.find((testCase) => isFaulty(TRACES, testCase, file));
    if (failed !== undefined) return `${name}: ${failed.name}`;
  }
  return null;
}

/** A reader that fails is faulty, too; but not one in which the switch is a slip of the pen. */
function isFaulty(functions, { function: name, input, expected }, file) {
  try {
    return firstDifference(expected, functions[name](input, file, expected)) !== null;
  } catch (error) {
    if (SLIPS.test(String(error))) throw error;
    return true;
  }
}

/** {text: the first trace that fails, isCaught}. */
async function verdictOn(each) {
  const folder = mkdtempSync(join(tmpdir(), "sfnode-switch-"));
  try {
    const text = firstFault(await readerWith(each, folder), each.vectors);
    return { text: text ?? "NOT NOTICED", isCaught: text !== null };
  } catch (error) {
    return { text: `BROKEN: ${error.message}`, isCaught: false };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Prints the table of these switches whose rule begins like one of `wanted`; whether each is noticed. */
export async function runSwitches(switches, wanted) {
  const isChosen = ({ rule }) => wanted.length === 0 || wanted.some((each) => rule.startsWith(each));
  const chosen = switches.filter(isChosen);
  let caught = 0;
  for (const each of chosen) {
    const { text, isCaught } = await verdictOn(each);
    caught += isCaught ? 1 : 0;
    console.log(`${each.rule} | ${each.off} | ${text}`);
  }
  console.log(`switches: ${caught} of ${chosen.length} are noticed by a trace`);
  return caught === chosen.length && caught > 0;
}
