// Cases of hashing.json, generator.json, subspace.json, scalars.json and ed25519.json: `input` to what is expected.

import { readBasisFile } from "./basis_file.mjs";
import { isValidAuthorKey, publicKeyOf, sign, verify } from "./ed25519.mjs";
import { hashFields, keyOf, seedOf } from "./hashing.mjs";
import { philox, signs, words } from "./philox.mjs";
import { directionsMeasured, exampleRows, keepsEnergyRule, quantise } from "./scalars.mjs";
import { quantiseDense, roundHalfAway, weightOf } from "./scalars.mjs";
import { canonicalCores, rademacherCores, randomBasis, scaleExponent } from "./subspace.mjs";
import { fromBytesStar, fromFloat64, fromHex, fromKey, fromWord, rowsOf } from "./vector_notation.mjs";
import { toDecimal, toHex, toKey, toSigns, toWord, verdictOf } from "./vector_notation.mjs";

export const HASHING = {
  hash_fields: ({ domain, fields }) => ({ digest: toHex(hashFields(domain, ...fields.map(fromHex))) }),
  key_of: ({ domain, fields }) => ({ key: toKey(keyOf(domain, ...fields.map(fromHex))) }),
  seed: ({ run_id: runId, author, step }) => ({ seed: toKey(seedOf(fromHex(runId), fromHex(author), step)) }),
};

export const GENERATOR = {
  philox: ({ counter, key }) => ({ block: philox(counter.map(fromWord), key.map(fromWord)).map(toWord) }),
  words: ({ key, stream, direction, count }) => ({
    words: Array.from(words(fromKey(key), count, stream, direction), toWord),
  }),
  signs: ({ key, stream, direction, count }) => ({ signs: toSigns(signs(fromKey(key), count, stream, direction)) }),
};

export const SUBSPACE = {
  basis({ run_id: runId, epoch, index, tensor, rank }) {
    const { u, v } = randomBasis(fromHex(runId), epoch, index, { ...tensor, rank });
    const rows = (flat) => rowsOf(flat, rank).map(toSigns);
    return { u: rows(u), v: tensor.kind === "vector" ? null : rows(v) };
  },
  cores({ seed, core, rank, direction, tensors }) {
    if (core === "rademacher") {
      const cores = rademacherCores(fromKey(seed), rank, tensors, direction);
      return { cores: cores.map(([a, b]) => [toSigns(a), toSigns(b)]) };
    }
    const cores = canonicalCores(fromKey(seed), rank, tensors, direction);
    return { cores: cores.map(([row, column, sign]) => [row, column, toSigns([sign])]) };
  },
  scale: ({ kind, ...method }) => ({ scale_exp: scaleExponent(method, kind) }),
  direction: weightDirection,
  basis_file: ({ method, tensors, data }) =>
    verdictOf(() => {
      const found = readBasisFile({ method, tensors }, fromBytesStar(data));
      const plain = ({ u, v, ...exponents }) => {
        return { u: rowsOf([...u], method.core_rows), v: rowsOf([...v], method.rank), ...exponents };
      };
      const target = rowsOf([...found.target], method.core_rows);
      return { target, target_exp: found.target_exp, bases: found.bases.map(plain) };
    }),
};

/** z of 4.2 for every tensor: (U a)(V b)^T, for a vector U a. */
function weightDirection({ run_id: runId, epoch, tensors, rank, core, seed, direction }) {
  const cores = signCores(core, fromKey(seed), { rank, count: tensors.length, direction });
  const directions = tensors.map((tensor, p) => {
    const { u, v } = randomBasis(fromHex(runId), epoch, p, { ...tensor, rank });
    const [left, right] = [project(u, cores[p][0], rank), project(v, cores[p][1], rank)];
    const entries = tensor.kind === "vector" ? left : left.map((x) => right.map((y) => x * y + 0));
    return { scale_exp: scaleExponent({ core, rank }, tensor.kind), entries };
  });
  return { directions };
}

/** [a, b] of each tensor as lists of integers, for either core. */
function signCores(core, seed, { rank, count, direction }) {
  if (core === "rademacher") return rademacherCores(seed, rank, count, direction);
  const unit = (index, value) => Array.from({ length: rank }, (_, i) => (i === index ? value : 0));
  return canonicalCores(seed, rank, count, direction).map(([i, j, sign]) => [unit(i, sign), unit(j, 1)]);
}

function project(basis, core, rank) {
  return rowsOf([...basis], rank).map((row) => row.reduce((sum, sign, index) => sum + sign * core[index], 0));
}

export const SCALARS = {
  round_half_away: ({ value }) => ({ integer: toDecimal(roundHalfAway(fromFloat64(value))) }),
  quantise: (input) => ({ scalars: quantise(input, input.projected_gradients.map(fromFloat64)) }),
  quantise_dense: ({ rows, mean, ...method }) => ({ scalars: quantiseDense(method, rows, mean.map(fromFloat64)) }),
  measured: ({ scalars, ...method }) => ({ directions: directionsMeasured(method, scalars) }),
  energy: ({ scalars }) => ({ is_allowed: keepsEnergyRule(scalars) }),
  weight: ({ steps, step, ...schedule }) => ({ weight: weightOf({ schedule, steps }, step) }),
  examples({ seed, batch_rows: batchRows, local_step: localStep, dataset_rows: dataRows }) {
    const rows = exampleRows(fromKey(seed), (localStep + 1) * batchRows, dataRows);
    return { rows: rows.slice(localStep * batchRows) };
  },
};

export const ED25519 = {
  author_key: ({ key }) => ({ is_valid: isValidAuthorKey(fromHex(key)) }),
  verify: ({ key, message, signature }) => ({ is_valid: verify(fromHex(key), fromHex(message), fromHex(signature)) }),
  sign({ secret_seed: secretSeed, message }) {
    const secret = fromHex(secretSeed);
    return { author: toHex(publicKeyOf(secret)), signature: toHex(sign(secret, fromHex(message))) };
  },
};
