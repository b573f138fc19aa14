// The gradients in dense messages (SPEC 5.6), from what a pass shows at the read tokens.

const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (left, right) => total(left.map((value, index) => value * right[index]));

function logSoftmax(scores) {
  const largest = Math.max(...scores);
  const norm = largest + Math.log(total(scores.map((score) => Math.exp(score - largest))));
  return scores.map((score) => score - norm);
}

/** softmax(scores) - e, with e = 1 in one place. */
function lacking(scores, place) {
  return logSoftmax(scores).map((value, index) => Math.exp(value) - (index === place ? 1 : 0));
}

/** Column j of A. */
function contrast(labels, j) {
  const size = Math.sqrt(labels / ((j + 1) * (j + 2)));
  return Array.from({ length: labels }, (_, word) => size * (word <= j ? 1 : word === j + 1 ? -(j + 1) : 0));
}

/** [d, x] of each read token of a row. */
function readWords({ label, scores, input }) {
  const rest = lacking(scores, label);
  const d = Array.from({ length: scores.length - 1 }, (_, j) => dot(contrast(scores.length, j), rest));
  return [[d, input]];
}

function readCandidates({ kind, embedding, factor, gain, target, target_exp: exponent }, { label, candidates }) {
  const logitsOf = (hidden) => embedding.map((row) => factor * dot(row, hidden));
  const columns = target[0].map((_, j) => target.map((row, index) => gain[index] * 2 ** exponent * row[j]));
  const moves = columns.map((column) => embedding.map((row) => factor * dot(row, column)));
  const scores = candidates.map((tokens) => {
    return total(tokens.map(({ token, hidden }) => logSoftmax(logitsOf(hidden))[token])) / tokens.length;
  });
  const shares = kind === "completion" ? [1] : lacking(scores, label).map((value) => -value);
  return candidates.flatMap((tokens, place) => {
    const c = shares[place] / tokens.length;
    return tokens.map(({ token, hidden, input }) => {
      const rest = lacking(logitsOf(hidden), token);
      return [moves.map((move) => c * dot(move, rest)), input];
    });
  });
}

/** The mean over the rows, core_rows x rank, row by row. */
export function denseGradient({ rows, v, v_exp: exponent, ...model }) {
  const read = rows.flatMap((row) => (model.kind === "words" ? readWords(row) : readCandidates(model, row)));
  const sides = v[0].map((_, column) => v.map((row) => row[column] * 2 ** exponent));
  return read[0][0].flatMap((_, i) => {
    return sides.map((side) => total(read.map(([d, input]) => d[i] * dot(side, input))) / rows.length);
  });
}
