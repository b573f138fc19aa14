// From coefficients to weights (SPEC 4.5, 4.7), in whole multiples of a power of two.

import { inputsOf, outputsOf, readBasisFile } from "./basis_file.mjs";
import { coreSizes, denseCore, isDense } from "./dense.mjs";
import { weightOf } from "./scalars.mjs";
import { randomBasis, scaleExponent } from "./subspace.mjs";

/** The bases of a run: (epoch, p) -> {u, v}. file: that of a dense core's basis. */
export function basesOf({ manifest, runId }, file) {
  const { method, tensors } = manifest;
  if (isDense(method)) {
    const { bases } = readBasisFile(manifest, file);
    return (_, p) => bases[p];
  }
  return (epoch, p) => randomBasis(runId, epoch, p, { ...tensors[p], rank: method.rank });
}

/** {scale_exp, entries} of every tensor: W_p = 2^scale_exp x entries. base: W0; epochs: [epoch, flat as BigInt]. */
export function view({ manifest }, bases, base, epochs) {
  const { method, tensors } = manifest;
  const cores = isDense(method) ? epochs.map(([step, flat]) => [step, coreOf(manifest, step, flat)]) : epochs;
  const sizes = coreSizes(manifest);
  let offset = isDense(method) ? 1 : 0;
  return tensors.map((tensor, p) => {
    const place = [offset, (offset += sizes[p])];
    const exponent = method.alpha_exp + (isDense(method) ? sidesExponent(bases(0, p)) : scaleExponent(method, tensor.kind));
    const scaled = [base[p]].flat(2).map((weight) => BigInt(weight) << BigInt(-exponent));
    for (const [epoch, flat] of cores) {
      const moved = product(bases(epoch, p), flat.slice(...place), method, tensor);
      moved.forEach((entry, index) => (scaled[index] -= entry));
    }
    const entries = scaled.map(Number);
    return { scale_exp: exponent, entries: tensor.kind === "vector" ? entries : inRows(entries, tensor.cols) };
  });
}

/** What the view has of a step of a dense run. flat: BigInt. */
export function coreOf(manifest, step, flat) {
  return denseCore(manifest, weightOf(manifest, step), flat);
}

function sidesExponent({ u_exp: left, v_exp: right }) {
  return left + right;
}

/** U C V^T, of a transposed tensor V C^T U^T, for a vector U C, row by row. */
function product({ u, v }, core, method, tensor) {
  const { rank } = method;
  const coreRows = isDense(method) ? method.core_rows : rank;
  const [outputs, inputs] = [outputsOf(tensor), inputsOf(tensor)];
  const entry = (output, input) => {
    let sum = 0n;
    for (let i = 0; i < coreRows; i += 1) {
      const left = BigInt(u[output * coreRows + i]);
      if (inputs === 0) sum += left * core[i];
      for (let j = 0; inputs > 0 && j < rank; j += 1) sum += left * core[i * rank + j] * BigInt(v[input * rank + j]);
    }
    return sum;
  };
  const width = Math.max(tensor.cols, 1);
  const isTurned = tensor.kind === "transposed";
  return Array.from({ length: outputs * Math.max(inputs, 1) }, (_, place) => {
    const [row, column] = [Math.floor(place / width), place % width];
    return isTurned ? entry(column, row) : entry(row, column);
  });
}

function inRows(entries, length) {
  return Array.from({ length: entries.length / length }, (_, row) => entries.slice(row * length, (row + 1) * length));
}
