// Cases of views.json and losses.json.

import { denseGradient } from "./gradients.mjs";
import { objectives, projectedGradients, rowsOfDirections } from "./losses.mjs";
import { runNamed } from "./vector_messages.mjs";
import { fromFloat64, fromHex, fromKey, toDecimal, toFloat64 } from "./vector_notation.mjs";
import { basesOf, coreOf, view } from "./view.mjs";

const TOLERANCE = 1e-9; // relative: exp and log differ in their last bits

export const VIEWS = {
  dense_core({ manifest, step, sums }, file) {
    return { core: coreOf(runNamed(file, manifest).manifest, step, sums.map(BigInt)).map(toDecimal) };
  },
  view({ manifest, base, epochs, basis }, file) {
    const run = runNamed(file, manifest);
    const held = epochs.map(([epoch, flat]) => [epoch, flat.map(BigInt)]);
    return { tensors: view(run, basesOf(run, fromHex(basis)), base, held) };
  },
};

export const LOSSES = {
  objective({ rows, ...task }, _, expected) {
    const given = rows.map(({ label, log_likelihoods: candidates }) => ({
      label,
      logLikelihoods: candidates.map((tokens) => tokens.map(fromFloat64)),
    }));
    const { values, predictions } = objectives(task, given);
    const shown = values?.map((value, index) => nearly(value, expected.values?.[index])) ?? null;
    const found = { values: shown, shown: expected.shown };
    return task.kind === "completion" ? found : { ...found, predictions };
  },
  projected_gradients({ objectives: found, ...method }, _, expected) {
    const gradients = projectedGradients(method, found.map(fromFloat64));
    return { projected_gradients: gradients.map(toFloat64), shown: expected.shown };
  },
  dense_gradient(given, _, expected) {
    const gradient = denseGradient(fromFloats(given)).map((value, index) => nearly(value, expected.gradient[index]));
    return { gradient, shown: expected.shown };
  },
  blocks({ seed, batch_rows: batchRows, directions, shares, local_step: localStep, dataset_rows: dataRows }) {
    return { rows: rowsOfDirections({ seed: fromKey(seed), batchRows, directions, shares, localStep, dataRows }) };
  },
};

/** The same with each float64 as a number, at any depth. */
function fromFloats(given) {
  if (typeof given === "string" && given.length === 16) return fromFloat64(given);
  if (Array.isArray(given)) return given.map(fromFloats);
  if (typeof given !== "object") return given;
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, fromFloats(value)]));
}

/** What is expected where the value is that within the tolerance. */
function nearly(value, expected) {
  const isNear = expected !== undefined && Math.abs(value - fromFloat64(expected)) <= TOLERANCE * Math.abs(value);
  return isNear ? expected : toFloat64(value);
}
