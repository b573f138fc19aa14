// Runs traces with one rule of the node machine switched off: a copy of the reader in which a text is another one.

import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { firstDifference } from "./differences.mjs";

const READER = fileURLToPath(new URL(".", import.meta.url));
const VECTORS = join(READER, "..", "vectors");
const ENTRY = "vector_traces.mjs";
const NOT_COPIED = new Set(["switching.mjs", "node_switches.mjs"]);

const sources = new Map(
  readdirSync(READER)
    .filter((name) => name.endsWith(".mjs") && !NOT_COPIED.has(name))
    .map((name) => [name, readFileSync(join(READER, name), "utf8")]),
);

/** [name, document] of every file of traces, the one named `first` first. */
export function traceFiles(first) {
  const names = readdirSync(VECTORS).filter((name) => name.startsWith("traces_") && name.endsWith(".json"));
  const ordered = [first, ...names.filter((name) => name !== first)].filter((name) => names.includes(name));
  return ordered.map((name) => [name, readDocument(name)]);
}

const documents = new Map();

function readDocument(name) {
  if (!documents.has(name)) documents.set(name, JSON.parse(readFileSync(join(VECTORS, name), "utf8")));
  return documents.get(name);
}

/** Null, or the first trace that fails with these edits [file, old text, new text]. */
export async function firstFailure(edits, first) {
  const folder = mkdtempSync(join(tmpdir(), "sfnode-switch-"));
  try {
    writeReader(folder, edits);
    const { TRACES } = await import(pathToFileURL(join(folder, ENTRY)));
    for (const [name, file] of traceFiles(first)) {
      const failed = file.cases.find((testCase) => !agrees(TRACES, testCase, file));
      if (failed !== undefined) return `${name}: ${failed.name}`;
    }
    return null;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function agrees(functions, { function: name, input, expected }, file) {
  try {
    return firstDifference(expected, functions[name](input, file, expected)) === null;
  } catch {
    return false;
  }
}

/** Changed files and whatever imports them are copies; all others are links, so that their modules are loaded once. */
function writeReader(folder, edits) {
  const changed = changedFiles(edits);
  const copied = new Set(changed.keys());
  for (let before = -1; before !== copied.size; ) {
    before = copied.size;
    for (const [name, source] of sources) if (importsOneOf(source, copied)) copied.add(name);
  }
  for (const [name, source] of sources) {
    const path = join(folder, name);
    if (copied.has(name)) writeFileSync(path, changed.get(name) ?? source);
    else symlinkSync(join(READER, name), path);
  }
}

/** Map of the name of each file that the edits change -> its new text. Throws where a text does not occur once. */
export function changedFiles(edits) {
  const changed = new Map();
  for (const [name, old, replacement] of edits) changed.set(name, edited(name, changed.get(name), old, replacement));
  return changed;
}

function edited(name, changed, old, replacement) {
  const source = changed ?? sources.get(name);
  const found = source.split(old).length - 1;
  if (found !== 1) throw new Error(`${name} has ${found} times: ${old}`);
  return source.replace(old, () => replacement);
}

function importsOneOf(source, names) {
  return [...source.matchAll(/from "\.\/([\w.]+)"/g)].some(([, name]) => names.has(name));
}
