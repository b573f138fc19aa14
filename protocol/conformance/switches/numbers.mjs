// How each rule about generator, subspace, coefficients and scalars is switched off (SPEC 3, 4, 5).

import { of } from "./table.mjs";

const GENERATOR = [
  ...of("philox.mjs", "generator.json", [
    ["3.1", "nine rounds", "const ROUNDS = 10;", "const ROUNDS = 9;"],
    ["3.1", "the same key in all rounds", "    k1 = (k1 + WEYL_1) >>> 0;\n"],
    ["3.2", "the stream before the direction", "[block, direction, 0, stream]", "[block, stream, 0, direction]"],
    [
      "3.2",
      "the high word of the key first",
      "[Number(key & 0xffffffffn), Number(key >> 32n)]",
      "[Number(key >> 32n), Number(key & 0xffffffffn)]",
    ],
    ["3.3", "the highest bit first", ">>> (index & 31)", ">>> (31 - (index & 31))"],
    ["3.3", "bit 1 is +1", "? -1 : 1", "? 1 : -1"],
  ]),
];

const SUBSPACE = [
  ...of("subspace.mjs", "subspace.json", [
    ["4.1", "U and V of one stream", "const STREAM_V = 1;", "const STREAM_V = 0;"],
    ["4.3", "the stream of canonical cores", "const STREAM_CANONICAL = 1;", "const STREAM_CANONICAL = 2;"],
    ["4.3", "the high half of each word first", "16 * (index & 1)", "16 * (1 - (index & 1))"],
    ["4.3", "no sign", "lane >>> 15 ? -1 : 1", "1"],
    [
      "4.3",
      "the column before the row",
      "lane & (rank - 1), (lane >>> bits) & (rank - 1)",
      "(lane >>> bits) & (rank - 1), lane & (rank - 1)",
    ],
    [
      "4.3",
      "b before a",
      "all.subarray(start, start + rank), all.subarray(start + rank, start + 2 * rank)",
      "all.subarray(start + rank, start + 2 * rank), all.subarray(start, start + rank)",
    ],
    ["4.4", "Rademacher cores are not scaled", 'core === "canonical"', "true"],
    ["4.4", "half an exponent is rounded down", "Math.ceil(bits / 2)", "Math.floor(bits / 2)"],
    ["4.4", "a vector is scaled as a matrix", 'kind === "matrix" ? -bits : -Math.ceil(bits / 2)', "-bits"],
  ]),
  ...of("vector_numbers.mjs", "subspace.json", [["4.2", "the product of one side", "x * y + 0", "x + 0"]]),
  ...of("coefficients.mjs", "ledgers.json", [
    ["4.2", "the same directions in each local step", "k * method.directions + d, q * weight", "d, q * weight"],
    ["4.5", "no weight", "q * weight", "q"],
    ["4.5", "the weight of the round's first step", "step + k)", "step)"],
    ["4.5", "one epoch for all", "Math.floor(step / method.epoch_steps)", "0"],
    ["4.5", "columns before rows", "row * rank + column : row", "column * rank + row : row"],
    ["4.5", "a vector takes b", "isMatrix ? a[row] * b[column] : a[row]", "isMatrix ? a[row] * b[column] : b[row]"],
    ["4.5", "what is taken out stays", "this.addPayload(payload, -1);", "this.addPayload(payload, 0);"],
  ]),
  ...of("manifest_rules.mjs", "manifests.json", [
    ["4.5", "the bound for all steps of a run", "Math.min(method.epoch_steps, steps)", "steps"],
    ["4.5", "the bound of normalised scalars", 'method.scalar === "raw" ? method.clip : 33', "method.clip"],
    [
      "4.5",
      "the bound by the first weight",
      "Math.max(schedule.weight_start, schedule.weight_end)",
      "schedule.weight_start",
    ],
  ]),
  ...of("view.mjs", "views.json", [
    ["4.5", "the view adds", "scaled[index] -= entry", "scaled[index] += entry"],
    ["4.5", "the view without alpha", "method.alpha_exp + (isDense", "(isDense"],
    [
      "4.5",
      "the view of one epoch",
      "for (const [epoch, flat] of cores)",
      "for (const [epoch, flat] of cores.slice(0, 1))",
    ],
    ["4.5", "a matrix is transposed", "core[i * rank + j]", "core[j * rank + i]"],
  ]),
  ...of("basis_file.mjs", "subspace.json", [
    ["4.6", "entries without a sign", "new Int8Array(data", "new Uint8Array(data"],
    ["4.6.1 BASIS", "any file", "digest === method.basis_sha256", "true"],
    ["4.6.2 BASIS", "any beginning", 'rejectUnless(data.subarray(0, MAGIC.length).equals(MAGIC), "BASIS", "another beginning");'],
    ["4.6.2 BASIS", "any length", "data.length === basisFileBytes({ method, tensors })", "data.length >= MAGIC.length + 3"],
    ["4.6.3 BASIS", "any exponent", "Math.abs(exp) <= EXPONENT_MAX", "true"],
    ["4.6.3 BASIS", "large exponents alone", "Math.abs(exp) <= EXPONENT_MAX", "exp <= EXPONENT_MAX"],
    ["4.6.3 BASIS", "any exponents of V", "[u_exp, ...exponents].every", "[u_exp].every"],
    ["4.6.3 BASIS", "any entry", "Math.abs(entry) <= ENTRY_MAX", "true"],
    ["4.6", "a V as wide as the core has rows", "tensors.map((tensor) => take(method.rank *", "tensors.map((tensor) => take(method.core_rows *"],
    ["4.6", "inputs are columns", 'return kind === "transposed" ? rows : cols;', "return cols;"],
    ["4.6", "outputs are rows", 'return kind === "transposed" ? cols : rows;', "return rows;"],
  ]),
];

const DENSE = [
  ...of("dense.mjs", "ledgers.json", [
    ["4.7", "a message weighs as one row", "factor * rows * q", "factor * q"],
    ["4.7", "rows are not counted", "flat[0] += factor * rows;"],
    ["4.7", "no place for the rows", "isDense(manifest.method) ? 1 : 0", "0"],
    ["4.7", "square cores", "isDense(method) ? method.core_rows : method.rank", "method.rank"],
  ]),
  ...of("dense.mjs", "views.json", [
    ["4.7", "no rows of noise", "rows + BigInt(method.noise_rows)", "rows > 0n ? rows : 1n"],
    ["4.7", "no weight", "BigInt(weight) * sum", "sum"],
    ["4.7", "halves towards zero", "(scaled < 0n ? -scaled : scaled) + divisor)", "(scaled < 0n ? -scaled : scaled) + divisor - 1n)"],
    ["4.7", "no half", "(scaled < 0n ? -scaled : scaled) + divisor)", "(scaled < 0n ? -scaled : scaled))"],
    ["4.7", "no sign", "return scaled < 0n ? -half : half;", "return half;"],
    ["4.7", "the rows are moved, too", "return [0n, ...sums.map(quotient)];", "return [rows, ...sums.map(quotient)];"],
  ]),
  ...of("view.mjs", "views.json", [
    ["4.7", "the sums themselves", "isDense(method) ? epochs.map(([step, flat]) => [step, coreOf(manifest, step, flat)]) : epochs", "epochs"],
    ["4.7", "the weight of the first step", "weightOf(manifest, step), flat", "weightOf(manifest, 0), flat"],
    ["4.7", "an exponent of one side", "return left + right;", "return left;"],
    ["4.7", "a transposed tensor moves like a matrix", "isTurned ? entry(column, row) : entry(row, column)", "isTurned ? entry(Math.floor(place / inputs), place % inputs) : entry(row, column)"],
    ["4.7", "the rows are a coordinate", "let offset = isDense(method) ? 1 : 0;", "let offset = 0;"],
  ]),
  ...of("scalars.mjs", "scalars.json", [
    ["5.6", "a gradient that is not finite is sent", "if (!Number.isFinite(length)) return null;"],
    ["5.6", "a long gradient is sent", "length > longest ? longest / length : 1", "1"],
    ["5.6", "no room for rounding", " - Math.sqrt(mean.length) / 2"],
    ["5.6", "every gradient has the largest length", "length > longest ? longest / length : 1", "length > 0 ? longest / length : 1"],
    ["5.6", "a negative length", "Math.max(0, Math.sqrt(energyMax) - Math.sqrt(mean.length) / 2)", "Math.sqrt(energyMax) - Math.sqrt(mean.length) / 2"],
    ["5.6", "no clip", "clamp(roundHalfAway(factor * x), clip)", "roundHalfAway(factor * x)"],
    ["5.6", "squares overflow", "Math.hypot(...scaled)", "Math.sqrt(scaled.reduce((sum, x) => sum + x * x, 0))"],
    ["5.6", "rounded before it is shortened", "roundHalfAway(factor * x)", "roundHalfAway(factor * roundHalfAway(x))"],
    ["9.1", "the rows of a dense message are not read", 'if (core === "dense") return scalars[0];'],
  ]),
];

const SCALARS = [
  ...of("scalars.mjs", "scalars.json", [
    ["5.1", "halves up", "Math.abs(x - whole) >= 0.5", "x - whole >= 0.5 || x - whole < -0.5"],
    ["5.1", "halves towards zero", ">= 0.5 ?", "> 0.5 ?"],
    ["5.2", "a loss that is not finite is sent", "  if (!gradients.every(Number.isFinite)) return null;\n"],
    [
      "5.2",
      "no clip of raw scalars",
      "clamp(roundHalfAway(g / 2 ** exponent), clip)",
      "roundHalfAway(g / 2 ** exponent)",
    ],
    ["5.2", "rounded before it is divided", "roundHalfAway(g / 2 ** exponent)", "roundHalfAway(g) / 2 ** exponent"],
    ["5.2", "normalised to 31", "(32 * x) / rms", "(31 * x) / rms"],
    [
      "5.2",
      "no clip of normalised scalars",
      "clamp(roundHalfAway((32 * x) / rms), NORMALISED_CLIP)",
      "roundHalfAway((32 * x) / rms)",
    ],
    ["5.2", "zeros are sent", "if (largest === 0) return null;", "if (largest === 0) return gradients.map(() => 0);"],
    ["5.2", "squares overflow", "g / largest)", "g)"],
    ["5.2", "energy without an upper bound", "4 * energy <= 4225 * scalars.length && "],
    ["5.2", "energy without a lower bound", "4 * energy >= 3969 * count", "true"],
    ["5.2", "energy of all directions", "3969 * count", "3969 * scalars.length"],
    ["5.2", "energy of no more than what is not zero", "4225 * scalars.length", "4225 * count"],
    ["5.2", "nothing measured is sent", "if (count === 0) return false;"],
    ["5.2", "what was not measured is left out", "return measured && [...measured, ", "return [...measured, "],
    ["9.1", "directions are not counted in whole blocks", "Math.ceil(last / shares) * shares", "last"],
    ["9.1", "nothing but zeros is nothing measured", " * shares || directions", " * shares"],
    ["9.1", "directions of the last local step", "(place % directions) + 1", "place + 1"],
    ["5.2", "no excuse for clipped scalars", "isClamped || "],
    ["5.3", "the weight is constant", 'kind === "constant" || n === 0', "true"],
    ["5.3", "the weight is rounded down", "* step) + n) / (2 * n)", "* step)) / (2 * n)"],
    ["5.4", "the stream of examples", "const STREAM_EXAMPLES = 3;", "const STREAM_EXAMPLES = 0;"],
    ["5.4", "the remainder", "(BigInt(word) * BigInt(dataRows)) >> 32n", "BigInt(word) % BigInt(dataRows)"],
  ]),
  ...of("losses.mjs", "losses.json", [
    [
      "5.2",
      "the sum over a candidate's tokens",
      "logLikelihoods.map(mean)",
      "logLikelihoods.map((tokens) => mean(tokens) * tokens.length)",
    ],
    ["5.2", "no candidates but the right one", "largest + Math.log(total) - scores[label]", "-scores[label]"],
    ["5.2", "a completion's likelihood", "loss: -scores[0]", "loss: scores[0]"],
    ["5.2", "one block", "rows.length / blocks", "rows.length"],
    ["5.2", "the share of right predictions", "return 1 - mean(rows.map", "return mean(rows.map"],
    ["5.2", "F1 of all labels together", "return 1 - mean(f1);", "return missedShare(rows);"],
    ["5.2", "F1 of the rows' labels alone", "[prediction, label]))]", "[label]))]"],
    ["5.2", "an objective that is not finite is sent", "isFinite ? values.map(measure) : null", "values.map(measure)"],
    ["5.2", "a central difference over epsilon", "/ (2 * epsilon)", "/ epsilon"],
    ["5.2", "a forward difference over 2 epsilon", "/ epsilon;", "/ (2 * epsilon);"],
    ["5.2", "each direction has a block", "found[directions + Math.floor(d / shares)]", "found[directions + d]"],
    ["5.2", "all directions share the first block", "const block = Math.floor(d / shares);", "const block = 0;"],
  ]),
];

export const SWITCHES_OF_NUMBERS = [...GENERATOR, ...SUBSPACE, ...DENSE, ...SCALARS];
