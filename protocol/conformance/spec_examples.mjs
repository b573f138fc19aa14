// Examples of SPEC.md, read from it: its blocks marked "vector: manifest", "vector: record", "vector: statement"
// and "vector: basis".

import { readFileSync } from "node:fs";

const lines = readFileSync(new URL("../SPEC.md", import.meta.url), "utf8").split("\n");

function linesAfter(mark, count) {
  const start = lines.findIndex((line) => line.endsWith(`<!-- vector: ${mark} -->`));
  if (start < 0) throw new Error(`SPEC.md has no block ${mark}`);
  return lines.slice(start + 1, start + 1 + count);
}

function hexOf(parts) {
  return Buffer.from(parts.join("").replace(/[` .]/g, ""), "hex");
}

/** Canonical bytes of the example run's manifest. */
export const EXAMPLE_MANIFEST = Buffer.from(linesAfter("manifest", 2)[1], "ascii");

/** The record of 6.1. */
export const EXAMPLE_RECORD = hexOf(linesAfter("record", 2));

/** The statement of 7.7. */
export const EXAMPLE_STATEMENT = hexOf(linesAfter("statement", 2));

/** The file of 4.6. */
export const EXAMPLE_BASIS = hexOf(linesAfter("basis", 1));
