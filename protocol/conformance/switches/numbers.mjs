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
    ["4.4", "the unit once per matrix", 'kind === "matrix" ? 2 : 1', "1"],
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
    ["4.5", "the view without alpha", "method.alpha_exp + scaleExponent", "scaleExponent"],
    [
      "4.5",
      "the view of one epoch",
      "for (const [epoch, flat] of epochs)",
      "for (const [epoch, flat] of epochs.slice(0, 1))",
    ],
    ["4.5", "a matrix is transposed", "core[i * rank + j]", "core[j * rank + i]"],
    ["4.5", "no start", 'kind === "matrix" ? starts : []', "[]"],
    ["4.5", "a start of the wrong sign", "scaled[index] += entry << shift", "scaled[index] -= entry << shift"],
    ["4.5", "a start without its exponent", "BigInt(start.exp - 2", "BigInt(-2"],
    ["4.5", "one start alone", "starts : []", "starts.slice(0, 1) : []"],
    ["4.5", "starts of epochs to come", "started.filter(({ from }) => from <= epoch)", "started"],
    ["4.5", "starts from the next epoch on", "({ from }) => from <= epoch).map", "({ from }) => from < epoch || from === 0).map"],
    ["4.5", "a file's start as often as it is named", "published.filter(isFirst)", "published"],
    ["4.5", "the view of another epoch than asked for", "at ?? newestEpoch(epochs)", "newestEpoch(epochs)"],
    ["4.5", "the view of the last epoch, whatever it has", "epochs.filter(([, flat]) => flat.some((each) => each !== 0n))", "epochs"],
    ["4.6", "renewed bases are not used", "[[0, file], ...renewals]", "[[0, file]]"],
    ["4.6", "a renewed basis from the next epoch on", "findLast(({ from }) => from <=", "findLast(({ from }) => from === 0 || from <"],
  ]),
  ...of("view.mjs", "views.json", [
    ["4.6", "a renewal has no start", "...renewals].map(", "...renewals].slice(0, 1).map("],
  ]),
  ...of("basis_file.mjs", "subspace.json", [
    ["4.6", "entries without a sign", "new Int8Array(data", "new Uint8Array(data"],
    ["4.6.1 BASIS", "any file", 'createHash("sha256").update(data).digest("hex") === digest', "true"],
    ["4.6.2 BASIS", "any beginning", "isHead && isShaped", "isShaped"],
    ["4.6.2 BASIS", "any shapes", "isHead && isShaped", "isHead"],
    ["4.6.2 BASIS", "any length", " && data.length === basisFileBytes({ method, tensors })"],
    ["4.6.3 BASIS", "a start that grows", "exp <= 0 && exp >=", "exp >="],
    ["4.6.3 BASIS", "a start of any size", " && exp >= (startRank === 0 ? 0 : START_EXP_MIN)"],
    ["4.6.3 BASIS", "an exponent without a start", "startRank === 0 ? 0 : START_EXP_MIN", "START_EXP_MIN"],
    ["4.6.4 BASIS", "entries beyond basis_max", "Math.abs(entry) <= largest", "true"],
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

export const SWITCHES_OF_NUMBERS = [...GENERATOR, ...SUBSPACE, ...SCALARS];
