// Rules between the manifest's fields (SPEC 1.4). All reject MANIFEST_FIELD.

import { basisFileBytes } from "./basis_file.mjs";
import { isValidAuthorKey } from "./ed25519.mjs";
import { rejectUnless } from "./verdicts.mjs";

const BASIS_BYTES_MAX = 2 ** 28;
const COEFFICIENTS_MAX = 2 ** 26;
const CORES_MAX = 2 ** 20;
const CORE_PRODUCTS_MAX = 2 ** 30;
const SCALARS_MAX = 1024;
const LOWER_HEX_64 = /^[0-9a-f]{64}$/;
const FORBIDDEN_IN_FILE_NAMES = /[/\\:\0]/;

function demand(condition, rule) {
  rejectUnless(condition, "MANIFEST_FIELD", `rule 1.4.${rule}`);
}

export function checkRules(manifest) {
  checkKeysAndFiles(manifest);
  checkTensors(manifest.tensors);
  checkMethod(manifest);
  checkBasis(manifest);
  checkTask(manifest.task);
  demand(manifest.admission.kind === "open" || manifest.admission.pow_bits === 0, 9);
  demand(coefficientCount(manifest) <= COEFFICIENTS_MAX, 10);
  const factor = BigInt(manifest.method.rank * manifest.method.basis_max) ** 2n;
  demand(factor * coefficientBound(manifest) < 2n ** 53n, 11);
  checkWork(manifest);
}

function checkKeysAndFiles({ owner, model }) {
  demand(isValidAuthorKey(Buffer.from(owner, "hex")), 1);
  for (const { name } of [model.config, ...model.weights, ...model.tokenizer]) {
    demand(name !== "." && name !== ".." && !FORBIDDEN_IN_FILE_NAMES.test(name), 2);
  }
}

function checkTensors(tensors) {
  demand(new Set(tensors.map(({ name }) => name)).size === tensors.length, 3);
  demand(
    tensors.every(({ kind, cols }) => (kind === "vector") === (cols === 0)),
    3,
  );
}

function checkMethod({ method, steps, task }) {
  const { rank, directions, shares, local_steps: localSteps } = method;
  demand(Number.isInteger(Math.log2(rank)), 4);
  demand(directions * localSteps <= SCALARS_MAX, 5);
  demand(steps % localSteps === 0 && method.epoch_steps % localSteps === 0, 5);
  demand(directions % shares === 0 && (task.batch_rows * shares) % directions === 0, 5);
  demand(method.scalar === "raw" || (directions >= 2 && method.clip === 127), 6);
}

function checkBasis(manifest) {
  const { basis, basis_sha256: digest, basis_unit_exp: unitExponent, basis_max: largest } = manifest.method;
  const startRank = manifest.method.start_rank;
  if (basis === "random") demand(digest === "" && unitExponent === 0 && largest === 1 && startRank === 0, 7);
  else demand(LOWER_HEX_64.test(digest) && basisFileBytes(manifest) <= BASIS_BYTES_MAX, 7);
}

function checkTask({ kind, completion, label_words: labelWords, objective, data, data_sha256: digest }) {
  const isClassification = kind === "classification";
  demand(isClassification ? labelWords.length >= 2 : labelWords.length === 0, 12);
  demand((completion === "") === isClassification, 12);
  demand(kind !== "completion" || objective === "loss", 12);
  demand(digest === "" || LOWER_HEX_64.test(digest), 1);
  demand((digest === "") === (data === "private"), 8);
}

function checkWork({ tensors, method }) {
  const cores = tensors.length * method.directions * method.local_steps;
  demand(cores <= CORES_MAX, 13);
  demand(method.core === "canonical" || cores * method.rank ** 2 <= CORE_PRODUCTS_MAX, 13);
}

/** Coefficients of the whole run: what rule 10 bounds. */
export function coefficientCount({ steps, method, tensors }) {
  const { rank } = method;
  const perEpoch = tensors.reduce((sum, { kind }) => sum + (kind === "matrix" ? rank * rank : rank), 0);
  return Math.ceil(steps / method.epoch_steps) * perEpoch;
}

/** C_max of 4.5 (BigInt): bounds every coefficient. */
export function coefficientBound({ method, schedule, steps, authors_max: authors }) {
  const perStep = method.directions * (method.scalar === "raw" ? method.clip : 33);
  const weight = Math.max(schedule.weight_start, schedule.weight_end);
  return [authors, Math.min(method.epoch_steps, steps), perStep, weight].map(BigInt).reduce((a, b) => a * b);
}
