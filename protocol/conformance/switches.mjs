// Switches one rule of the specification off in this reader, and looks whether a vector notices; then the next one.
// Usage: node protocol/conformance/switches.mjs [RULE...]; a RULE may be the beginning of one: 8.4
// Prints a table. Exit code 1 if a switch is not noticed, or does not fit the reader any more.
// The rules of the node machine have a table of their own: node_switches.mjs.

import { runSwitches } from "./switching.mjs";
import { SWITCHES_OF_DOCUMENTS } from "./switches/documents.mjs";
import { SWITCHES_OF_MESSAGES } from "./switches/messages.mjs";
import { SWITCHES_OF_NUMBERS } from "./switches/numbers.mjs";
import { SWITCHES_OF_REWARDS } from "./switches/rewards.mjs";
import { SWITCHES_OF_RUNS } from "./switches/runs.mjs";
import { SWITCHES_OF_SETS } from "./switches/sets.mjs";
import { SWITCHES_OF_STRINGS } from "./switches/strings.mjs";
import { SWITCHES_OF_SYNC } from "./switches/sync.mjs";
import { SWITCHES_OF_TOKENS } from "./switches/tokens.mjs";

const ALL = [
  SWITCHES_OF_RUNS,
  SWITCHES_OF_REWARDS,
  SWITCHES_OF_NUMBERS,
  SWITCHES_OF_TOKENS,
  SWITCHES_OF_SETS,
  SWITCHES_OF_MESSAGES,
  SWITCHES_OF_STRINGS,
  SWITCHES_OF_SYNC,
  SWITCHES_OF_DOCUMENTS,
].flat();
const isUsed = (name) => !name.startsWith("traces_");
process.exitCode = (await runSwitches(ALL, process.argv.slice(2), isUsed)) ? 0 : 1;
