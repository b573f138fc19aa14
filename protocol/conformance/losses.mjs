// From log-likelihoods of tokens to objectives, and from these to projected gradients (SPEC 5.2).

import { exampleRows } from "./scalars.mjs";

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** {loss, prediction} of a row: its right candidate, and log-likelihoods of each candidate's tokens. */
function judgeRow(kind, { label, logLikelihoods }) {
  const scores = logLikelihoods.map(mean);
  if (kind === "completion") return { loss: -scores[0], prediction: 0, label };
  const largest = Math.max(...scores);
  const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
  return { loss: largest + Math.log(total) - scores[label], prediction: scores.indexOf(largest), label };
}

/** {values: the objective over each block, or null where a loss is not finite; predictions}. */
export function objectives({ kind, objective, blocks }, rows) {
  const judged = rows.map((row) => judgeRow(kind, row));
  const size = rows.length / blocks;
  const values = Array.from({ length: blocks }, (_, block) => judged.slice(block * size, (block + 1) * size));
  const measure = { loss: meanLoss, accuracy: missedShare, f1: missedF1 }[objective];
  const isFinite = judged.every(({ loss }) => Number.isFinite(loss));
  return { values: isFinite ? values.map(measure) : null, predictions: judged.map(({ prediction }) => prediction) };
}

function meanLoss(rows) {
  return mean(rows.map(({ loss }) => loss));
}

function missedShare(rows) {
  return 1 - mean(rows.map(({ prediction, label }) => (prediction === label ? 1 : 0)));
}

/** 1 - the mean F1 over the labels that occur, also as a prediction. */
function missedF1(rows) {
  const occurring = [...new Set(rows.flatMap(({ prediction, label }) => [prediction, label]))];
  const count = (isCounted) => rows.filter(isCounted).length;
  const f1 = occurring.map((each) => {
    const right = count(({ prediction, label }) => prediction === each && label === each);
    return (2 * right) / (count(({ prediction }) => prediction === each) + count(({ label }) => label === each));
  });
  return 1 - mean(f1);
}

/** g of every direction. Two sides: L of all directions plus, then minus; one: L of all plus, then of the blocks. */
export function projectedGradients({ sides, directions, shares, epsilon_exp: exponent }, found) {
  const epsilon = 2 ** exponent;
  return found.slice(0, directions).map((plus, d) => {
    if (sides === 2) return (plus - found[directions + d]) / (2 * epsilon);
    return (plus - found[directions + Math.floor(d / shares)]) / epsilon;
  });
}

/** The rows of the data with which each direction of a local step is probed. */
export function rowsOfDirections({ seed, batchRows, directions, shares, localStep, dataRows }) {
  const rows = exampleRows(seed, (localStep + 1) * batchRows, dataRows).slice(localStep * batchRows);
  const size = (batchRows * shares) / directions;
  return Array.from({ length: directions }, (_, d) => {
    const block = Math.floor(d / shares);
    return rows.slice(block * size, (block + 1) * size);
  });
}
