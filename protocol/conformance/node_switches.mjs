// Switches one rule of the node machine off in this reader, and looks whether a trace notices; then the next one.
// Usage: node protocol/conformance/node_switches.mjs [RULE...]; a RULE may be the beginning of one: 9.1
// Prints a table. Exit code 1 if a switch is not noticed, or does not fit the reader any more.

import { runSwitches } from "./switching.mjs";
import { SWITCHES_OF_NODE_LATE } from "./switches/node_late.mjs";
import { SWITCHES_OF_NODE_SETS } from "./switches/node_sets.mjs";
import { SWITCHES_OF_NODE_SHIFTS } from "./switches/node_shifts.mjs";
import { SWITCHES_OF_NODE_STEPS } from "./switches/node_steps.mjs";
import { SWITCHES_OF_NODE_SYNC } from "./switches/node_sync.mjs";

const ALL = [...SWITCHES_OF_NODE_SETS, ...SWITCHES_OF_NODE_SYNC, ...SWITCHES_OF_NODE_STEPS, ...SWITCHES_OF_NODE_LATE, ...SWITCHES_OF_NODE_SHIFTS];
const isUsed = (name) => name.startsWith("traces_");
process.exitCode = (await runSwitches(ALL, process.argv.slice(2), isUsed)) ? 0 : 1;
