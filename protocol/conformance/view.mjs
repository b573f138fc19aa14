// From coefficients to weights (SPEC 4.5), in whole multiples of a power of two.

import { createHash } from "node:crypto";
import { namedBasis, readBasisFile } from "./basis_file.mjs";
import { coreSizes, denseCore, isDense } from "./dense.mjs";
import { weightOf } from "./scalars.mjs";
import { randomBasis, scaleExponent } from "./subspace.mjs";

/**
 * The bases of a run: of: (epoch, p) -> {u, v}; starts: epoch -> a list, each as `readBasisFile` gives it.
 * file, renewals ([first epoch, bytes], ascending): where it is published.
 */
export function basesOf({ manifest, runId }, file, renewals) {
  const { method, tensors } = manifest;
  if (method.basis === "random") {
    return { of: (epoch, p) => randomBasis(runId, epoch, p, { ...tensors[p], rank: method.rank }), starts: () => [] };
  }
  const published = [[0, file], ...renewals].map(([from, data]) => {
    const sha256 = createHash("sha256").update(data).digest("hex");
    return { from, sha256, ...readBasisFile(namedBasis(manifest, sha256), data) };
  });
  const isFirst = ({ sha256 }, index) => published.findIndex((each) => each.sha256 === sha256) === index;
  const started = method.start_rank === 0 ? [] : published.filter(isFirst);
  return {
    of: (epoch, p) => published.findLast(({ from }) => from <= epoch).bases[p],
    // The least of all files: in its multiples every one of them is whole.
    exponent: (p) => Math.min(...published.map(({ bases }) => bases[p].u_exp + bases[p].v_exp)),
    starts: (epoch) => started.filter(({ from }) => from <= epoch).map(({ start }) => start),
  };
}

/**
 * {scale_exp, entries} of every tensor: W_p = 2^scale_exp x entries. base: W0; epochs: [epoch, flat as BigInt].
 * at: the epoch whose starts are in it; null: the last one with a coefficient.
 */
export function view({ manifest }, bases, base, epochs, at) {
  const { method, tensors } = manifest;
  const starts = bases.starts(at ?? newestEpoch(epochs));
  const cores = isDense(method) ? epochs.map(([step, flat]) => [step, coreOf(manifest, step, flat)]) : epochs;
  const coreRows = isDense(method) ? method.core_rows : method.rank;
  const sizes = coreSizes(manifest);
  let offset = isDense(method) ? 1 : 0;
  return tensors.map(({ kind, rows, cols }, p) => {
    const place = [offset, (offset += sizes[p])];
    const exponent = method.alpha_exp + (isDense(method) ? bases.exponent(p) : scaleExponent(method, kind));
    const scaled = [base[p]].flat(2).map((weight) => BigInt(weight) << BigInt(-exponent));
    for (const start of kind === "matrix" ? starts : []) {
      const shift = BigInt(start.exp - 2 * method.basis_unit_exp - exponent);
      const shape = { rank: method.start_rank, coreRows: method.start_rank, rows, cols };
      const moved = product(start.products[p], unitCore(method.start_rank), shape);
      moved.forEach((entry, index) => (scaled[index] += entry << shift));
    }
    for (const [epoch, flat] of cores) {
      const basis = bases.of(epoch, p);
      const shift = isDense(method) ? BigInt(basis.u_exp + basis.v_exp - bases.exponent(p)) : 0n;
      const moved = product(basis, flat.slice(...place), { rank: method.rank, coreRows, rows, cols });
      moved.forEach((entry, index) => (scaled[index] -= entry << shift));
    }
    const entries = scaled.map(Number);
    return { scale_exp: exponent, entries: kind === "vector" ? entries : inRows(entries, cols) };
  });
}

/** What the view has of a step of a dense run. flat: BigInt. */
export function coreOf(manifest, step, flat) {
  return denseCore(manifest, weightOf(manifest, step), flat);
}

function newestEpoch(epochs) {
  return Math.max(0, ...epochs.filter(([, flat]) => flat.some((each) => each !== 0n)).map(([epoch]) => epoch));
}

/** Ones on the diagonal: U I V^T = U V^T. */
function unitCore(rank) {
  return Array.from({ length: rank ** 2 }, (_, place) => (place % (rank + 1) === 0 ? 1n : 0n));
}

/** U C V^T, for a vector U C, row by row. */
function product({ u, v }, core, { rank, coreRows, rows, cols }) {
  const width = Math.max(cols, 1);
  const entry = (row, column) => {
    let sum = 0n;
    for (let i = 0; i < coreRows; i += 1) {
      const left = BigInt(u[row * coreRows + i]);
      if (cols === 0) sum += left * core[i];
      for (let j = 0; cols > 0 && j < rank; j += 1) sum += left * core[i * rank + j] * BigInt(v[column * rank + j]);
    }
    return sum;
  };
  return Array.from({ length: rows * width }, (_, place) => entry(Math.floor(place / width), place % width));
}

function inRows(entries, length) {
  return Array.from({ length: entries.length / length }, (_, row) => entries.slice(row * length, (row + 1) * length));
}
