// Rules between the manifest's fields (SPEC 1.4). All reject MANIFEST_FIELD.

import { basisFileBytes, outputsOf } from "./basis_file.mjs";
import { flatLength, isDense } from "./dense.mjs";
import { isValidAuthorKey } from "./ed25519.mjs";
import { Unfit, readRule } from "./reward.mjs";
import { rejectUnless } from "./verdicts.mjs";

const BASIS_BYTES_MAX = 2 ** 28;
const BASIS_ENTRY_MAX = 127;
const COEFFICIENTS_MAX = 2 ** 26;
const CORES_MAX = 2 ** 20;
const CORE_PRODUCTS_MAX = 2 ** 30;
const DENSE_NUMBERS_MAX = 2 ** 14;
const DENSE_CLIPS = [1, 7, 127];
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
  checkTask(manifest.task, manifest.method);
  demand(manifest.admission.kind === "open" || manifest.admission.pow_bits === 0, 9);
  demand(coefficientCount(manifest) <= COEFFICIENTS_MAX, 10);
  demand(viewBound(manifest) < 2n ** 53n, 11);
  checkWork(manifest);
  checkDenseCore(manifest);
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
  const { method } = manifest;
  if (!isDense(method)) demand(method.basis_sha256 === "", 7);
  else demand(LOWER_HEX_64.test(method.basis_sha256) && basisFileBytes(manifest) <= BASIS_BYTES_MAX, 7);
}

function checkTask(task, method) {
  const { kind, completion, label_words: labelWords, objective, data, data_sha256: digest } = task;
  const isClassification = kind === "classification";
  demand(isClassification ? labelWords.length >= 2 : labelWords.length === 0, 12);
  demand((completion === "") === isClassification, 12);
  demand(kind !== "completion" || objective === "loss", 12);
  if (kind === "reward") {
    demand(samplesOf(completion) <= task.batch_rows, 12);
    demand(isDense(method), 12);
  }
  demand(digest === "" || LOWER_HEX_64.test(digest), 1);
  demand((digest === "") === (data === "private"), 8);
}

/** The samples of a rule of rewards; Infinity: the text is none. */
function samplesOf(text) {
  try {
    return readRule(text).samples;
  } catch (error) {
    if (error instanceof Unfit) return Infinity;
    throw error;
  }
}

function checkWork({ tensors, method }) {
  const cores = tensors.length * method.directions * method.local_steps;
  demand(cores <= CORES_MAX, 13);
  demand(method.core !== "rademacher" || cores * method.rank ** 2 <= CORE_PRODUCTS_MAX, 13);
}

function checkDenseCore(manifest) {
  const { method, tensors, task } = manifest;
  const { core_rows: rows, noise_rows: noiseRows, energy_max: energyMax } = method;
  if (!isDense(method)) {
    demand(rows === 0 && noiseRows === 0 && energyMax === 0, 14);
    demand(tensors.every(({ kind }) => kind !== "transposed"), 14);
    return;
  }
  demand(rows > 0 && noiseRows > 0 && energyMax > 0, 14);
  demand(method.scalar === "raw" && DENSE_CLIPS.includes(method.clip) && method.epsilon_exp === 0 && method.sides === 1, 14);
  demand(method.shares === 1 && method.local_steps === 1 && method.epoch_steps === 1, 14);
  demand(tensors.every((tensor) => tensor.kind !== "vector" && outputsOf(tensor) === outputsOf(tensors[0])), 14);
  demand(task.batch_rows === method.directions, 14);
  demand(task.objective === "loss", 14);
  demand(flatLength(manifest) <= DENSE_NUMBERS_MAX, 14);
}

/** Coefficients of the whole run: what rule 10 bounds. */
export function coefficientCount(manifest) {
  return Math.ceil(manifest.steps / manifest.method.epoch_steps) * flatLength(manifest);
}

function weightMax({ schedule }) {
  return Math.max(schedule.weight_start, schedule.weight_end);
}

function product(...factors) {
  return factors.map(BigInt).reduce((a, b) => a * b);
}

/** C_max of 4.5 and 4.7 (BigInt): bounds every coefficient. */
export function coefficientBound(manifest) {
  const { method, steps, authors_max: authors } = manifest;
  if (isDense(method)) return product(authors, method.directions, method.clip);
  const perStep = method.directions * (method.scalar === "raw" ? method.clip : 33);
  return product(authors, Math.min(method.epoch_steps, steps), perStep, weightMax(manifest));
}

/** Bounds every entry of U C V^T of an epoch, of a dense run that of all steps together. */
function viewBound(manifest) {
  const { rank, core_rows: rows, clip, core } = manifest.method;
  if (core !== "dense") return product(coefficientBound(manifest), rank ** 2);
  return product(manifest.steps, weightMax(manifest), clip, rows, rank, BASIS_ENTRY_MAX ** 2);
}
