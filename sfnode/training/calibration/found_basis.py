"""Find the basis of a dense core by forward passes over examples whose labels are not looked at.

A third of the layers that write to the residual stream get the core (`moving_tensors`). V has the leading directions
of a layer's inputs at the tokens that are read, scaled to variance one. The target has directions of the stream's end:

* With label words, one for each contrast between them, which moves its logits by one contrast. A layer's U is what
  makes such a move arrive through the layers after it (`measured_sides`).
* With candidates, the leading directions in which a move changes the loss, over their root mean square. They are each
  layer's U, too: the direct path.

So the loss has curvature one along each column: at even predictions (elsewhere at most half the number of label
words), for texts where the model is now. The largest eigenvalue of all layers' V^T x together is then the largest
curvature by the core, and its inverse the rate of a Newton step. The unit and the bound of a message come from labels
that are drawn. The examples' own labels choose nothing but the rate: by how much a step lowers their loss.

What the kind of task decides, at most (short: of 16 tokens or fewer, and answers that got most of 5 or fewer;
`suited_rate` may still change the rate):

    task                  examples     U                         V of        rate  noise rows
    label words           256 rows     contrasts, measured path  all tokens  1     64; as below without a path
    choices, completions  256 rows     16 leading, direct path   all tokens  1     128; 64 if the rate is lowered
    short completions     256 rows     12 leading, direct path   beginnings  1     128; 64 if the rate is lowered
    rewards               128 answers  16 leading, direct path   all tokens  0.2   128
    short answers         256 answers  12 leading, direct path   beginnings  0.5   128
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from protocol.errors import OperatorError
from protocol.limits import BASIS_ENTRY_MAX, DENSE_NUMBERS_MAX, RANK_MAX
from protocol.run import TensorSpec
from protocol.subspace import Basis, BasisContent, Int8Array, words
from sfnode.storage import DenseSettings
from sfnode.training.calibration.example_passes import Look, look_at
from sfnode.training.calibration.learning_rate import Progress, suited_rate, trial_passes
from sfnode.training.calibration.measured_path import measured_sides
from sfnode.training.calibration.residual_writers import moving_tensors, writers_of
from sfnode.training.dense_estimate import contrasts
from sfnode.training.reward_estimate import SHORT_TOKENS, Drawn, begins_apart, draw_answers
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData

# In steps of Newton's method, for a step of very many rows: docs/decisions/0032-all-numbers-from-one-pass.md
RATE = 1.5
_NOISE_ROWS = 128  # that a step's quotient counts beside its own: docs/decisions/0032-all-numbers-from-one-pass.md
_FEW_NOISE_ROWS = 64  # with a measured path, or a lowered rate: fewer let a lone author leap
_PROMPTS = 128  # that the model answers, in a run that learns from rewards; twice as many with short answers
EXAMPLES = 256
_PATH_EXAMPLES = 64  # that the path of a move is measured with
EXAMPLES_MIN = 32  # fewer say too little about the inputs to come
_RANK = 64
_RANK_MIN = 8
_CORE_ROWS = 16  # with candidates, at most
_SHORT_CORE_ROWS = 12  # with such answers: more of them would leave half of the columns of V
_LATER = 4  # directions of what layers get after its first token that count as much as that token
_SHORT_SHARE, _LONG_SHARE = 0.5, 0.2  # of the rate: the noise of messages from rewards does not get smaller
_BEFORE_MAX = 0.2  # mean square of V^T x at tokens before a completion; it is near one where it is read
_LEAST = 0.003  # share of the gradients' squares in a direction that is worth a row
_RIDGE = 0.003  # of the sum of all eigenvalues but the first, which is that of the mean
# By the bits of a message's numbers: their unit is at most their rms over this, and more than half of that
_LEVELS_OF_RMS = {2: 0.6, 4: 1.5, 8: 16.0}
_LENGTH_MAX = 1.4  # of a message, in medians: what the most lopsided rows need
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBasis:
    """A basis, with the settings of a run that uses it.

    Attributes:
        tensors: that have a core, in the order of the manifest.
        learning_rate: that suits the basis.
        rows: that went through the model to find it.
        backward_rows: that went back through it, to its activations; 0 where the layers take the direct path.
        drawn: the answers that it was found with, one to a prompt; none where the run has labels or texts.
        is_cut_form: the rule allows few tokens, and the answers that got most are decided at each of theirs: more
            allowed ones would be drawn without unlikely ones (SPEC 5.7), and such forms are learnt sooner.
    """

    content: BasisContent
    tensors: tuple[TensorSpec, ...]
    settings: DenseSettings
    learning_rate: float
    rows: int
    backward_rows: int
    drawn: tuple[Drawn, ...] = ()
    is_cut_form: bool = False


def calibrate(
    shared: SharedModel,
    tensors: Sequence[TensorSpec],
    data: TaskData,
    batch_rows: int,
    bits: int,
    on_progress: Progress = lambda _done, _total: None,
) -> FoundBasis | None:
    """Find a basis for cores of some of ``tensors``; None where there can be none.

    That is so for fewer than 32 examples, models whose writing layers are not known, and more label words or numbers
    than a message can hold. A message is of ``batch_rows`` examples, its numbers have 2, 4 or 8 ``bits``.

    OperatorError: the model gives numbers that are not finite, or all choices of each row are equal.
    """
    if data.examples and all(each.candidates[1:] and len({*each.candidates}) == 1 for each in data.examples):
        raise OperatorError("the choices of each row are all alike, so they teach nothing: give different ones")
    drawn, is_short = list[Drawn](), _is_short(data)
    if data.draws_answers:
        few = replace(data, examples=tuple(spread_out(data.examples, 2 * _PROMPTS if is_short else _PROMPTS)))
        data, drawn = draw_answers(shared, few, lambda done, twice: on_progress(done, twice + trial_passes(few)))
        is_short = is_short and begins_apart(data.examples, drawn)
    examples, labels = spread_out(data.examples, EXAMPLES), len(data.label_tokens)
    moving = moving_tensors(writers_of(shared, tensors), has_label_words=labels > 0)
    if len(examples) < EXAMPLES_MIN or not moving or labels == 1 or labels > RANK_MAX + 1:
        return None
    data, path = replace(data, examples=tuple(examples)), spread_out(examples, _PATH_EXAMPLES) if labels else []
    total = (looked := len(drawn) + len(examples) + len(path)) + trial_passes(data)
    look = look_at(shared, moving, data, lambda more, _: on_progress(len(drawn) + more, total))
    # The basis: V of each layer, then U, as the file holds them.
    target_Hr = _target(shared, data.label_tokens, look, _SHORT_CORE_ROWS if is_short else _CORE_ROWS)
    if (rank := _rank(len(moving) * (core_rows := target_Hr.shape[1]))) is None:
        return None
    sides = [
        _entries(_leading((_beginnings if is_short else _all_tokens)(x, look), first, before, rank))
        for x, first, before in zip(look.inputs, look.first, look.before, strict=True)
    ]
    h_Pk = torch.cat([x.double() @ _doubles(*side) for x, side in zip(look.inputs, sides, strict=True)], dim=1)
    if len(look.excess):
        target_Hr *= _Gradients(look, target_Hr, h_Pk).lengths()
    of_path, seen = replace(data, examples=tuple(path)), looked - len(path)
    measured = measured_sides(shared, moving, of_path, lambda more: on_progress(seen + more, total)) if path else None
    content = _content_of(target_Hr, measured or [target_Hr] * len(moving), sides)
    # Unit, bound and rate of messages along it.
    gradients = _Gradients(look, _doubles(content.target, content.target_exp), h_Pk)
    quantum_exp, energy_max = _scale_of(gradients.drawn_messages(batch_rows), bits)
    clip = (1 << bits - 1) - 1
    size = 1.0 if labels else look.size  # with candidates, gradients are measured for a stream of size one
    rate = RATE / max(gradients.curvature(), _TINY) / size
    rate *= 1.0 if not data.draws_answers else _SHORT_SHARE if is_short else _LONG_SHARE
    rate, share, rows = suited_rate(
        shared, moving, content, data, (rate, size), lambda more, all_: on_progress(looked + more, looked + all_)
    )
    noise_rows = _FEW_NOISE_ROWS if not data.draws_answers and (measured or share < 1) else _NOISE_ROWS
    settings = DenseSettings(
        core_rows=core_rows, rank=rank, quantum_exp=quantum_exp, energy_max=energy_max, clip=clip, noise_rows=noise_rows
    )
    return FoundBasis(
        content=content,
        tensors=moving,
        settings=settings,
        learning_rate=rate,
        rows=len(look.example) + len(path) + rows,
        backward_rows=len(path) if measured else 0,
        drawn=tuple(drawn),
        is_cut_form=bool(drawn) and _is_short(data) and not is_short,
    )


def _is_short(data: TaskData) -> bool:
    """Return whether all answers, or all completions of a prompt, are so short that their first token says which."""
    if data.judge is not None and data.draws_answers:
        return data.judge.rule.tokens <= SHORT_TOKENS
    completions = [each.candidates[0] for each in data.examples if len(each.candidates) == 1 and len(each.tokens) > 1]
    return bool(completions) and max(map(len, completions)) <= SHORT_TOKENS


def _rank(rows: int) -> int | None:
    """Return the rank of cores with so many rows in all; None where a message cannot hold their numbers."""
    rank = _RANK
    while rows * rank >= DENSE_NUMBERS_MAX:
        rank //= 2
    return rank if rank >= _RANK_MIN else None


def spread_out(examples: Sequence[Example], most: int) -> list[Example]:
    """Return at most ``most`` of the examples, evenly spread: they are often sorted by label or length."""
    count = min(most, len(examples))
    return [examples[number * len(examples) // count] for number in range(count)]


def _target(shared: SharedModel, label_tokens: Sequence[int], look: Look, most: int) -> Tensor:
    """Return columns that move the label words' logits by one contrast each at the end of the stream, fp64[H, r].

    Without label words the leading ones, at most ``most`` (`_leading_excess`).
    """
    if not label_tokens:
        return _leading_excess(look, most)
    tokens_L = torch.tensor(label_tokens, device=shared.device)
    stream_LH = shared.scored_head.of_stream(tokens_L, shared.norm_gain()).cpu().double() / look.size
    target_Hr: Tensor = torch.linalg.pinv(stream_LH - stream_LH.mean(dim=0)) @ contrasts(len(label_tokens))
    return target_Hr


def _leading_excess(look: Look, most: int) -> Tensor:
    """Return the leading directions in which a move of the stream's end changes the loss, at most ``most``: [H, r].

    Each is scaled so that the second moment of the gradient along it is one. Candidates that are the same in all
    examples have few directions.
    """
    if look.spread.any():
        moment_HH = look.spread
    else:
        of_token = look.excess.double() * look.weight.double()[:, None]
        of_row = torch.zeros(len(look.example), of_token.shape[1]).double().index_add(0, look.row, of_token)
        apart_RH = _apart(look, of_row)
        moment_HH = apart_RH.T @ apart_RH
    values, vectors = torch.linalg.eigh(moment_HH / (int(look.example.max()) + 1))
    values, vectors = values.flip(0)[:most], vectors.flip(1)[:, :most]
    count = max(1, int((values > _LEAST * values.sum()).sum()))
    sides_Hr: Tensor = vectors[:, :count] * look.size / values[:count].clamp_min(_TINY).sqrt()
    return sides_Hr


def _apart(look: Look, of_row: Tensor) -> Tensor:
    """Return by how much the candidates of an example differ from their mean, over the root of their number, [R, ...].

    Its second moment, summed over them, is what one drawn evenly has: an equal move of all scores bends no loss.
    """
    even_R = (1 / look.example.bincount()[look.example].double())[:, None]
    mean_N = of_row.new_zeros(int(look.example.max()) + 1, of_row.shape[1])
    mean_N.index_add_(0, look.example, even_R * of_row)
    return (of_row - mean_N[look.example]) * even_R.sqrt()


def _all_tokens(inputs_PI: Tensor, look: Look) -> Tensor:
    """Return a layer's inputs, each times the root of its share of the second moment, fp64[P, I]."""
    return inputs_PI.double() * (look.weight / look.weight.sum()).double().sqrt()[:, None]


def _beginnings(inputs_PI: Tensor, look: Look) -> Tensor:
    """Return the same of short answers: their first tokens, and the leading directions of the later ones.

    Inputs differ far more from word to word than from prompt to prompt. Among all tokens, what sets the prompts
    apart is lost, and a run learns one answer to everything: docs/decisions/0035-rewards.md
    """
    x_PI = _all_tokens(inputs_PI, look)
    is_first_P = torch.ones(len(look.row), dtype=torch.bool)
    is_first_P[1:] = look.row.diff() != 0
    first_RI, later_PI = inputs_PI[is_first_P].double() / math.sqrt(int(is_first_P.sum())), x_PI[~is_first_P]
    if not len(later_PI):
        return first_RI
    later_PI = later_PI / look.weight[~is_first_P].sum().double().div(look.weight.sum()).sqrt()
    _, sizes, directions = torch.linalg.svd(later_PI, full_matrices=False)
    return torch.cat([first_RI, sizes[:_LATER, None] * directions[:_LATER]])


def _leading(x_PI: Tensor, first_I: Tensor, before_BI: Tensor, rank: int) -> Tensor:
    """Return the leading eigenvectors of the uncentred second moment of inputs, each over sqrt(eigenvalue + ridge).

    The first is the mean and carries the prior of the labels. fp64[I, rank], zeros beyond the inputs and the examples:
    directions that no example has been seen to take would get the greatest lengths.

    What a layer gets at the first token of a text can be five hundred times as long, and all later tokens attend to it
    (Sun et al., "Massive activations", arXiv 2402.17762): a step would leap there. So V shrinks its direction, until it
    is as long as what the layer gets at the tokens that are looked at. A layer adds to all tokens before a completion,
    too, and where V^T x is many times as long there, steps leap as well: such columns are shortened.
    """
    if not x_PI.any():  # a layer that somebody has pruned
        return x_PI.new_zeros(x_PI.shape[1], rank)
    length = first_I.norm().clamp_min(_TINY)
    first_I, cut = first_I / length, (1 - x_PI.norm() / length).clamp_min(0.0)
    x_PI = x_PI - cut * (x_PI @ first_I).outer(first_I)
    if len(x_PI) < x_PI.shape[1]:  # the same eigenvalues, from the smaller matrix
        values, left = torch.linalg.eigh(x_PI @ x_PI.T)
        vectors = x_PI.T @ (left / values.clamp_min(_TINY).sqrt())
    else:
        values, vectors = torch.linalg.eigh(x_PI.T @ x_PI)
    known = min(rank, len(values))
    values, vectors = values.flip(0)[:known].clamp_min(0), vectors.flip(1)[:, :known]
    scaled = vectors / (values + _RIDGE * values[1:].sum()).sqrt().clamp_min(_TINY)
    scaled = scaled - cut * first_I.outer(first_I @ scaled)
    if len(before_BI):
        scaled = scaled / (before_BI.double() @ scaled).square().mean(dim=0).div(_BEFORE_MAX).clamp_min(1.0).sqrt()
    return nn.functional.pad(scaled, (0, rank - scaled.shape[1]))


def _content_of(target_Hr: Tensor, u_Hr: Sequence[Tensor], v: Sequence[tuple[Int8Array, int]]) -> BasisContent:
    """Return the content of the file; ``u_Hr`` of each tensor, ``v`` as entries."""
    target, target_exp = _entries(target_Hr)
    tensors = [
        Basis(u=entries, v=v_entries, u_exp=exp, v_exp=v_exp)
        for (entries, exp), (v_entries, v_exp) in zip(map(_entries, u_Hr), v, strict=True)
    ]
    return BasisContent(target=target, target_exp=target_exp, tensors=tuple(tensors))


def _entries(side: Tensor) -> tuple[Int8Array, int]:
    """Return int8 entries and the least exponent at which they hold the side: it is entries x 2^exponent."""
    largest = max(float(side.abs().max()), _TINY)
    exp = math.ceil(math.log2(largest / BASIS_ENTRY_MAX))
    return (side * 2.0**-exp).round().numpy().astype(np.int8), exp


def _doubles(entries: Int8Array, exp: int) -> Tensor:
    values: Tensor = torch.from_numpy(entries).double() * 2.0**exp
    return values


class _Gradients:
    """Says what gradients by the core the examples have, for labels that are drawn.

    u_Hr: the columns of U. h_Pk: V^T x of all layers.
    """

    def __init__(self, look: Look, u_Hr: Tensor, h_Pk: Tensor) -> None:
        self._look, self._h_Pk = look, h_Pk
        self._examples = int(look.example.max()) + 1
        self._excess_Pr = look.excess.double() @ u_Hr * look.weight[:, None] if len(look.excess) else look.excess
        drawn = words(0, self._examples).astype(np.int64)
        if look.logits.numel():
            labels = look.logits.shape[1]
            one_hot_NL = nn.functional.one_hot(torch.from_numpy(drawn % labels), labels)
            self._excess_Pr = (look.logits.double().softmax(dim=1) - one_hot_NL) @ contrasts(labels)
        self._drawn_N = torch.from_numpy(drawn)

    def _of_rows(self, columns: slice = slice(None)) -> Tensor:
        """Return the gradient of each row by the core, or by some rows of it, [R, r K]: the sum over its tokens."""
        found = self._excess_Pr[:, columns, None] * self._h_Pk[:, None, :]
        rows = torch.zeros(len(self._look.example), *found.shape[1:], dtype=found.dtype)
        return rows.index_add(0, self._look.row, found).flatten(1)

    @property
    def _is_choice(self) -> bool:
        return len(self._look.example) > self._examples

    def curvature(self, columns: slice = slice(None)) -> float:
        """Return the largest curvature of the loss by the core, or some rows of it, where it has curvature one by U."""
        look = self._look
        if self._is_choice:
            apart = _apart(look, self._of_rows(columns)) / look.size
        else:
            apart = self._h_Pk * look.weight.double().sqrt()[:, None]
        return float(torch.linalg.matrix_norm(apart, ord=2)) ** 2 / self._examples

    def lengths(self) -> Tensor:
        """Return by what to multiply the columns of U, at most one each, so that none bends the loss more than V does.

        Candidates of different lengths are read at different tokens: what moves all of them equally does not cancel.
        """
        found = torch.ones(self._excess_Pr.shape[1]).double()
        if not self._is_choice:
            return found
        h_Pk, rows = self._h_Pk * self._look.weight.double().sqrt()[:, None], len(self._look.example)
        usual = float(torch.linalg.matrix_norm(h_Pk, ord=2)) ** 2 / rows
        for column in range(len(found)):
            bends = self.curvature(slice(column, column + 1))
            found[column] = min(1.0, math.sqrt(usual / max(bends, _TINY)))
        return found

    def drawn_messages(self, batch_rows: int) -> Tensor:
        """Return messages of ``batch_rows`` examples each, [messages, r K]."""
        rows_RK = self._of_rows()
        if self._is_choice:  # one candidate of each example is drawn as the right one
            look = self._look
            options_N = look.example.bincount()
            first_N = options_N.cumsum(0) - options_N
            is_right_R = torch.zeros(len(rows_RK)).double()
            is_right_R[first_N + self._drawn_N % options_N] = 1.0
            rows_RK = rows_RK * (is_right_R - look.likely.double())[:, None]
        found_NK = torch.zeros(self._examples, rows_RK.shape[1]).double().index_add(0, self._look.example, rows_RK)
        apart = max(1, self._examples // batch_rows)  # sorted by length: each message takes some of all lengths
        return torch.stack([found_NK[first::apart].mean(dim=0) for first in range(apart)])


def _scale_of(messages: Tensor, bits: int) -> tuple[int, int]:
    """Return the exponent of the unit of such messages, and the largest sum of squares of their numbers."""
    rms = float(messages.square().mean().sqrt())
    quantum_exp = math.floor(math.log2(max(rms, _TINY) / _LEVELS_OF_RMS[bits]))
    length = _LENGTH_MAX * float(messages.norm(dim=1).median())
    # Rounding may add half a unit to each number (SPEC 5.6), which is much where a unit is
    return quantum_exp, math.ceil((length * 2.0**-quantum_exp + math.sqrt(messages.shape[1]) / 2) ** 2)
