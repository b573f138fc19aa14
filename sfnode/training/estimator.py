"""Estimate and evaluate a run on a shared base model, from one node's coefficients and examples.

The current epoch acts as a low-rank term on the activations, together with the perturbation. Other epochs with the same
basis join this term at no cost, since their coefficients add up. Epochs with other bases are folded into copies of
the trained weights, which are remade when these change. The base weights stay shared and untouched.

`DenseMeasure` makes a message of a dense core: from labels, texts or rewards, with noise if that is wanted (SPEC 5.6).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from protocol import subspace
from protocol.crypto import Author
from protocol.errors import OperatorError
from protocol.run import Manifest, Method, TaskKind
from protocol.state import CoefficientLayout, Coefficients, Int64Array
from protocol.subspace import drawn_examples
from sfnode.privacy import NoisySum, length_max
from sfnode.training.dense_estimate import mean_gradient, row_gradients
from sfnode.training.model import MatrixTerm, Term, VectorTerm, Weight, attach, quantised
from sfnode.training.reward_estimate import evaluate_answers, judge_of, reward_gradient
from sfnode.training.shared_model import FoldedWeights, SharedModel
from sfnode.training.task import CandidateBatch, Example, RowBatch, TaskData, chunks_of, scoring
from sfnode.worker_protocol import Estimated, Evaluated, NoiseConfig

Progress = Callable[[int, int], None]

EVALUATION_TOKENS = 8_192  # per pass: bounds activation memory, and is large enough for full speed
EVALUATIONS_KEPT = 64
_PREDICTIONS_KEPT = 8


@dataclass(frozen=True, slots=True)
class DenseMeasure:
    """Measures the rows of a step at one core. NumericError: a loss is not finite, or answers teach nothing."""

    shared: SharedModel
    bases: subspace.Bases
    data: TaskData
    core: Int64Array

    def message(self, batch: Sequence[Example], seed: int, noise: NoiseConfig | None) -> Estimated:
        """Measure these examples, or the answers to them that ``seed`` draws."""
        manifest = self.bases.manifest
        if self.data.draws_answers:
            return self._answered(batch, seed)
        if noise is not None:
            return self._noisy(batch, noise.multiplier)
        passed, d_Pr, h, losses = self._gradients(batch)
        message = subspace.quantise_dense(manifest.method, len(batch), mean_gradient(d_Pr, h, len(batch)))
        return Estimated(scalars=message, loss=float(losses.mean()), rows=passed)

    def _answered(self, prompts: Sequence[Example], seed: int) -> Estimated:
        """Measure by the rewards of several answers to each of the prompts."""
        rule = judge_of(self.data).rule
        count = len(prompts) * rule.samples
        draws = drawn_examples.answer_draws(seed, count, rule.tokens).reshape(len(prompts), rule.samples, rule.tokens)
        mean, reward = reward_gradient(self.shared, self.bases, self.core, self.data, prompts, draws)
        message = subspace.quantise_dense(self.bases.manifest.method, count, mean)
        return Estimated(scalars=message, loss=1.0 - reward, rows=count)

    def _noisy(self, examples: Sequence[Example], multiplier: float) -> Estimated:
        """Measure with noise. Each row is passed alone: others' lengths would move its last digits."""
        method = self.bases.manifest.method
        numbers = CoefficientLayout(self.bases.manifest).size - 1  # one is the number of rows
        total = NoisySum(numbers, length_max(method, numbers))
        losses, passed = 0.0, 0
        for example in examples:
            count, d_Pr, h, loss = self._gradients([example])
            total.add(mean_gradient(d_Pr, h, 1))
            losses, passed = losses + float(loss.nan_to_num().sum()), passed + count
        message = subspace.quantise_dense(method, len(examples), total.noisy_mean(multiplier))
        return Estimated(scalars=message, loss=losses / len(examples), rows=passed)

    def _gradients(self, examples: Sequence[Example]) -> tuple[int, Tensor, list[Tensor], Tensor]:
        """Pass examples forward in one batch; return the rows passed, and what `row_gradients` returns.

        Where a rule rewards answers, each loss is one less how likely a token of the right one is: a mean reward rises.
        """
        batch = self.shared.batch(self.data, examples)
        d_Pr, h, loss_N = row_gradients(self.shared, self.bases, self.core, batch, self.data.label_tokens)
        if self.data.judge is not None:
            loss_N = 1 - (-loss_N).exp()  # of all tokens together it would stay near one for long answers
        return len(batch.tokens), d_Pr, h, loss_N


class Estimator:
    """Computes one node's estimates and evaluations of a run, on a shared model with the node's examples."""

    def __init__(
        self,
        shared: SharedModel,
        bases: subspace.Bases,
        data: TaskData,
        noise: NoiseConfig | None = None,
        author: Author | None = None,
    ) -> None:
        """Take examples of one's own, which have their turn, with ``author``; without, each seed draws some of them."""
        self.data, self._noise, self._author = data, noise, author
        self._shared, self._bases = shared, bases
        manifest = self.manifest = bases.manifest
        if noise is not None and (not manifest.method.is_dense or manifest.task.draws_answers):
            raise OperatorError("noise hides rows in messages of dense cores from labels or texts alone: leave it out")
        self._layout = CoefficientLayout(manifest)
        self._epochs: dict[int, Int64Array] = {}
        self._shown: dict[int, bytes | None] = {}  # digests of epochs that came from `show`
        self._dense_sum = np.zeros(self._layout.size if manifest.method.is_dense else 0, dtype=np.int64)
        self._fold: FoldedWeights | None = None
        self._fold_name: str | None = None  # the basis for which the fold is right; None: other epochs have changed
        with shared.lock:
            attach(shared.model, manifest.tensors, shared.pass_context, is_dense=manifest.method.is_dense)

    def set_coefficients(self, epoch: int, flat: Int64Array) -> None:
        """Replace the coefficients of ``epoch``, int64[layout.size]."""
        if flat.shape != (self._layout.size,):
            raise OperatorError(f"epoch {epoch}: {flat.size} coefficients, the run has {self._layout.size}")
        flat = flat.astype(np.int64)
        if self.manifest.method.is_dense:
            self._dense_sum += flat - self._epochs.get(epoch, 0)
        self._epochs[epoch] = flat
        self._shown.pop(epoch, None)
        if self._bases.name(epoch) != self._fold_name:
            self._fold_name = None

    def show(self, coefficients: Coefficients) -> None:
        """Replace all coefficients by these; what is equal already costs nothing. OperatorError: of another run."""
        if (found := coefficients.run_id) != self.manifest.run_id:
            raise OperatorError(f"coefficients of run {found.hex()}: the learner is of {self.manifest.run_id.hex()}")
        for epoch in sorted({*self._epochs, *coefficients.epochs()}):
            digest = coefficients.epoch_digest(epoch)
            if self._shown.get(epoch, b"") != digest:
                self.set_coefficients(epoch, coefficients.core(epoch))
                self._shown[epoch] = digest

    @torch.inference_mode()
    def estimate(self, seed: int, step: int, directions: int | None = None) -> Estimated:
        """Estimate the round that starts at ``step``: K local steps, each on top of the worker's own earlier ones.

        ``directions`` limits the estimate to the first ones, in whole blocks (None: all D). The scalars of the others
        are 0 and cost no forward pass. OperatorError: the session has no training data.
        NumericError: a loss is not finite, or all projected gradients are zero where they are normalised.
        """
        method = self.manifest.method
        measured = with_directions(method, method.directions if directions is None else directions)
        if not self.data.examples:
            raise OperatorError("this node has no training data: give --data, or join without training")
        if method.is_dense:
            measure = DenseMeasure(self._shared, self._bases, self.data, self._live(step))
            with self._shared.lock:
                return measure.message(self._batch(seed, step, measured.directions), seed, self._noise)
        epoch = step // method.epoch_steps
        live = self._live(epoch)
        scalars: list[int] = []
        losses: list[float] = []
        spent = 0
        with self._shared.lock, self._shared.switch.using(self._closed_weights(epoch)):
            for local_step in range(method.local_steps):
                factors = subspace.direction_factors(self.manifest, seed, local_step).first(measured.directions)
                rows = self._rows(seed, local_step, measured)
                loss_G = self._losses(factors, epoch, live, rows)
                q = subspace.quantise(method, projected_gradients(measured, loss_G))
                # The next local step starts where this one leads, with the weight that the ledger will give to it.
                weight = self.manifest.weight(step + local_step)
                add_own(self._layout, live, factors, np.array(q[: measured.directions]) * weight)
                scalars += q
                losses.append(float(loss_G.mean()))
                spent += len(rows.tokens)
        return Estimated(scalars=tuple(scalars), loss=sum(losses) / len(losses), rows=spent)

    def _batch(self, seed: int, step: int, rows: int) -> list[Example]:
        """Return the examples of a dense message of ``rows``: with rewards, answers, of which a prompt gets several."""
        manifest, examples = self.manifest, self.data.examples
        each = 1 if self.data.judge is None else self.data.judge.rule.rows_each
        if self._author is None:
            chosen = drawn_examples.example_indices(manifest, seed, 0, len(examples))
        else:
            batch_rows = manifest.task.batch_rows // each
            chosen = drawn_examples.examples_in_turn(manifest, self._author, step, len(examples), batch_rows)
        return [examples[index] for index in chosen[: max(1, rows // each)].tolist()]

    @torch.inference_mode()
    def evaluate(self, rows_max: int = 0, on_progress: Progress = lambda _done, _rows: None) -> Evaluated:
        """Evaluate the model with folded weights on the first ``rows_max`` evaluation rows (0: all of them).

        ``on_progress`` hears how many of how many rows are done.
        Sessions of one run with equal states, data and rewards share one result, which the first call computes.
        OperatorError: there are no such rows.
        """
        if rows_max < 0:
            raise OperatorError(f"{rows_max} rows cannot be evaluated: give a number, or 0 for all")
        examples = self.data.evaluation_examples[: rows_max or None]
        if not examples:
            raise OperatorError("no evaluation data: give --eval-data")
        own = None if self.data.judge is None else self.data.judge.own
        key = (
            self.manifest.run_id,
            _digest(self._bases, self._epochs),
            hashlib.sha256(repr(examples).encode()).digest(),
            self.data.judge if callable(own) else own,  # objects may have no hash
        )
        known = self._shared.evaluations
        with self._shared.lock:
            if key not in known:
                with self._shared.switch.using(self._folded(self._epochs)):
                    known[key] = self._evaluate(examples, on_progress)
            known.move_to_end(key)
            while len(known) > EVALUATIONS_KEPT:
                known.popitem(last=False)
            return known[key]

    def _evaluate(self, examples: Sequence[Example], on_progress: Progress) -> Evaluated:
        if self.data.judge is not None:
            return evaluate_answers(self._shared, self.data, examples, on_progress)
        right, loss = 0.0, 0.0
        predictions, labels = [], []
        # On a processor fewer rows in a pass are as fast, and progress is seen sooner.
        tokens_max = EVALUATION_TOKENS // (1 if self._shared.device.type == "cuda" else 4)
        for members in chunks_of(examples, tokens_max):
            rows = self._shared.batch(self.data, members)
            found = self._shared.scores(rows, self.data.label_tokens)
            right += float(found.right.sum())
            loss += float(found.loss.sum())
            predictions.append(found.prediction.cpu())
            labels.append(rows.labels.cpu())
            on_progress(sum(map(len, labels)), len(examples))
        is_completion = self.manifest.task.kind is TaskKind.COMPLETION
        predicted = torch.cat(predictions)
        by_length = sorted(range(len(examples)), key=lambda number: examples[number].width)  # the order of `chunks_of`
        first = [int(predicted[by_length.index(number)]) for number in range(min(_PREDICTIONS_KEPT, len(examples)))]
        return Evaluated(
            accuracy=right / len(examples),
            f1=None if is_completion else float(scoring.macro_f1(predicted[None], torch.cat(labels)[None])),
            loss=loss / len(examples),
            rows=len(examples),
            predictions=() if is_completion else tuple(first),
        )

    def _live(self, epoch: int) -> Int64Array:
        """Return the sum of the coefficients of all epochs with the basis of ``epoch``, as a copy."""
        if self.manifest.method.is_dense:
            return self._dense_sum.copy()
        return self._epochs.get(epoch, np.zeros(self._layout.size, dtype=np.int64)).copy()

    def _rows(self, seed: int, local_step: int, measured: Method) -> RowBatch | CandidateBatch:
        """Return the rows of all groups in order (`group_blocks`), padded to one width so that all round equally."""
        indices = drawn_examples.example_indices(self.manifest, seed, local_step, len(self.data.examples))
        blocks = indices.reshape(self.manifest.method.blocks, -1)
        of_groups = group_blocks(measured)
        chosen = [self.data.examples[index] for index in blocks[of_groups].reshape(-1).tolist()]
        return self._shared.batch(self.data, chosen, len(of_groups))

    def _losses(
        self, factors: subspace.DirectionFactors, epoch: int, live: Int64Array, rows: RowBatch | CandidateBatch
    ) -> torch.Tensor:
        """Return the objective of every group of rows (`live_terms`), fp64[G] on the CPU."""
        groups = len(group_blocks(with_directions(self.manifest.method, len(factors.a))))
        terms = live_terms(self._shared, self._bases, epoch, live, factors)
        with self._shared.pass_context.carrying(terms, groups, rows.tokens.numel()):
            found = self._shared.scores(rows, self.data.label_tokens)
        return scoring.group_objectives(self.manifest.task.objective, found, rows.labels, groups)

    def _closed_weights(self, live_epoch: int) -> dict[str, Weight]:
        """Return the weights with the epochs of other bases than ``live_epoch``'s folded in.

        They are kept until these change, and shared with sessions for which they are equal.
        """
        name = self._bases.name(live_epoch)
        if name == self._fold_name:
            return self._fold or {}
        self._fold_name = None  # until the new one is made
        closed = {epoch: flat for epoch, flat in self._epochs.items() if self._bases.name(epoch) != name and flat.any()}
        if not closed:
            self._fold, self._fold_name = None, name
            return {}
        key = self.manifest.run_id + _digest(self._bases, closed)
        fold = self._shared.folds.get(key)
        if fold is None:
            self._fold = None  # frees the old copies before the new ones are made, unless another session holds them
            fold = FoldedWeights(self._folded(closed))
            self._shared.folds[key] = fold
        self._fold, self._fold_name = fold, name
        return fold

    def _folded(self, epochs: dict[int, Int64Array]) -> dict[str, Weight]:
        switch = self._shared.switch
        return quantised.closed_weights(self._bases, epochs, switch.base, switch.placed)


def live_terms(
    shared: SharedModel, bases: subspace.Bases, epoch: int, live: Int64Array, factors: subspace.DirectionFactors
) -> dict[str, Term]:
    """Return the term of every tensor: M_g = -2^k C + s_g eps 2^scale a_d b_d^T for each group g.

    ``factors`` holds all D directions, or the first ones in whole blocks. The groups are s = +1 for each direction,
    then s = -1 for each direction (two sides) or s = 0 for each block (one side).

    -2^k C is computed in fp64 and rounded once to the loss dtype; the perturbation is exact in that dtype. A matrix M_g
    acts between the bases: the layer adds U M_g V^T. A vector's M_g is turned into its entries here, as M_g U^T.
    """
    manifest = bases.manifest
    layout, tensors_P = CoefficientLayout(manifest), shared.bases(bases, epoch)
    terms: dict[str, Term] = {}
    for is_matrix in (True, False):
        chosen = np.flatnonzero(layout.is_matrix == is_matrix)
        if not len(chosen):
            continue
        moved_PG = _moved(manifest, live, factors, chosen, shared)
        for index, moved in zip(chosen.tolist(), moved_PG, strict=True):
            u, v = tensors_P[index]
            if v is None:
                term: Term = VectorTerm(delta=moved @ u.to(moved.dtype).t())
            else:
                term = MatrixTerm(u=u[:-1].t(), v=v, m=moved, up=u)
            terms[manifest.tensors[index].name] = term
    return terms


def _moved(
    manifest: Manifest, live: Int64Array, factors: subspace.DirectionFactors, chosen: Int64Array, shared: SharedModel
) -> torch.Tensor:
    """Return M of the ``chosen`` tensors, either all matrices or all vectors: [P, G, r, r] or [P, G, r]."""
    layout, first = CoefficientLayout(manifest), int(chosen[0])
    scale = 2.0 ** subspace.scale_exp(manifest.method, manifest.tensors[first])  # the same for all tensors of a kind
    # All tensors of a kind at once: a few large operations in place of some for each of hundreds of tensors.
    live_P = np.stack([layout.tensor(live, index) for index in chosen.tolist()]).astype(np.float64)
    core_P = live_P * -(scale * 2.0**manifest.method.alpha_exp)
    step_PD = (manifest.epsilon * scale) * factors.a[:, chosen].swapaxes(0, 1).astype(np.float64)
    core, step = _on(core_P, shared).unsqueeze(1), _on(step_PD, shared)
    if layout.is_matrix[first]:
        b_PDr = _on(factors.b[:, chosen].swapaxes(0, 1).astype(np.float64), shared)
        step = step.unsqueeze(3) * b_PDr.unsqueeze(2)
    if manifest.method.sides == 2:
        return torch.cat([core + step, core - step], dim=1)
    # one side: each block also runs once without a perturbation
    blocks = len(factors.a) // manifest.method.shares
    return torch.cat([core + step, core.expand(-1, blocks, *core.shape[2:])], dim=1)


def _on(values: np.typing.NDArray[np.float64], shared: SharedModel) -> torch.Tensor:
    return torch.from_numpy(values).to(shared.loss_dtype).to(shared.device)  # cast first: MPS has no fp64


def add_own(
    layout: CoefficientLayout, flat: Int64Array, factors: subspace.DirectionFactors, amounts: Int64Array
) -> None:
    """Add amount_d a_d b_d^T to C in place, as the ledger will do with the same scalars."""
    a_DPr, b_DPr = factors.a.astype(np.int64), factors.b.astype(np.int64)
    for index in range(a_DPr.shape[1]):
        a_Dr = a_DPr[:, index] * amounts[:, None]
        target = layout.tensor(flat, index)
        target += a_Dr.T @ b_DPr[:, index] if layout.is_matrix[index] else a_Dr.sum(axis=0)


def with_directions(method: Method, directions: int) -> Method:
    """Return ``method`` with the first ``directions`` only: whole blocks, at least one."""
    assert 0 < directions <= method.directions and directions % method.shares == 0, directions
    return replace(method, directions=directions)


def group_blocks(method: Method) -> Int64Array:
    """Return the block of examples of each group of rows, int64[G]; the groups are those of `live_terms`."""
    of_direction = np.arange(method.directions) // method.shares
    return np.concatenate([of_direction, of_direction if method.sides == 2 else np.arange(method.blocks)])


def projected_gradients(method: Method, loss_G: torch.Tensor) -> list[float]:
    """Return g_d of all directions from the losses of the groups (SPEC 5.2)."""
    plus_D, other = loss_G[: method.directions], loss_G[method.directions :]
    # One side: the directions of a block share its unperturbed rows
    difference_D = (plus_D - other) / 2 if method.sides == 2 else plus_D - other.repeat_interleave(method.shares)
    result: list[float] = (difference_D * 2.0**-method.epsilon_exp).tolist()
    return result


def _digest(bases: subspace.Bases, epochs: dict[int, Int64Array]) -> bytes:
    """Return a cache key, valid in this process: a hash of coefficients and their bases.

    Epochs without any coefficient other than 0 do not count.
    """
    hasher = hashlib.sha256()
    for epoch in sorted(epochs):
        if epochs[epoch].any():
            hasher.update(bases.name(epoch).encode() + epochs[epoch].tobytes())
    return hasher.digest()
