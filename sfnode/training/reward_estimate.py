"""Measure every coordinate of a dense core from answers that were checked (SPEC 5.7).

The model writes several answers to each prompt. An answer's advantage is its reward less the mean of the others to its
prompt (REINFORCE with a leave-one-out baseline: Kool et al. 2019), in units of the root mean square of all of them, or
of a tenth where that is larger: where hardly an answer differs, chance would be made large. The message is the mean
over all answers of the advantage times the gradient of the answer's mean log-loss, along the direct path as for texts
that are given. It is heard while the answers are written: there is no further pass.

Shapes: N answers, P tokens that were written, r = core_rows, k = rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import NumericError, OperatorError
from protocol.state import Int64Array
from protocol.subspace import Bases, drawn_examples
from sfnode.quality_figures import SAMPLE_CHARACTERS, AnswerSpread, SampleAnswer
from sfnode.training.answers import Answers, AnswerWriter
from sfnode.training.dense_estimate import dense_terms, mean_gradient
from sfnode.training.model import MatrixTerm
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import AnswerJudge, Example, TaskData
from sfnode.worker_protocol import ANSWER_TOKENS_AT_ONCE, Evaluated

_SPREAD_LEAST, _LIKELY_LEAST = 0.1, 0.1  # SPEC 5.7, as the next: of the advantages' unit, of the likeliest token
SHORT_TOKENS = 16  # of an answer whose first token may decide
_SAMPLES_KEPT = 3  # of an evaluation, for people to read
_PROMPTS_AT_ONCE = 32  # so that progress shows
_FEW_TOKENS = 5  # of an answer whose first token says which, with the one that ends it

Drawn = tuple[str, float, bool]  # an answer of the model's own, its reward, and whether it has ended


def judge_of(data: TaskData) -> AnswerJudge:
    """Return the judge of a run that learns from rewards."""
    if data.judge is None:
        raise OperatorError("this run learns from labels and texts, and not from rewards")
    return data.judge


def writer_of(
    shared: SharedModel, data: TaskData, terms: Mapping[str, MatrixTerm], names: Sequence[str] = ()
) -> AnswerWriter:
    """Return what writes answers as the run's rule asks for them; `AnswerWriter` says what ``names`` are."""
    tokens = (judge := judge_of(data)).rule.tokens
    least = _LIKELY_LEAST if tokens > SHORT_TOKENS else 0.0
    return AnswerWriter(shared, terms, names, stops=judge.stops, tokens_max=tokens, least=least)


@torch.inference_mode()
def reward_gradient(
    shared: SharedModel,
    bases: Bases,
    core: Int64Array,
    data: TaskData,
    examples: Sequence[Example],
    draws: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]:
    """Let the model at this core answer the prompts of ``examples``, and check what it writes.

    Return the mean gradient of the answers by all coordinates, in the order of a message, and their mean reward.

    ``draws``: float64[examples, answers to each, tokens] in (0, 1), which choose the tokens.

    NumericError: all answers to each prompt are equally good, so they teach nothing.
    """
    judge, hearing = judge_of(data), _Hearing(shared, bases)
    names = [tensor.name for tensor in bases.manifest.tensors]
    writer = writer_of(shared, data, dense_terms(shared, bases, core), names)
    rewards: list[float] = []
    for first, chunk in _chunks(examples, draws.shape[1], draws.shape[2]):
        prompts = [example.tokens for example in chunk]
        written = writer.write(prompts, draws[first : first + len(chunk)], partial(hearing.hear, len(rewards)))
        rewards += [reward for _, reward in checked_answers(judge, chunk, written)]
    advantages = advantages_of(np.array(rewards).reshape(draws.shape[:2]))
    return hearing.mean_gradient(advantages), float(np.mean(rewards))


def evaluate_answers(
    shared: SharedModel, data: TaskData, examples: Sequence[Example], on_progress: Callable[[int, int], None]
) -> Evaluated:
    """Evaluate the model, with the weights as they are, by its likeliest answers; report how many are written."""
    judge, found = judge_of(data), likeliest_answers(shared, data, examples, on_progress)
    return Evaluated(
        accuracy=sum(reward >= 1.0 for _, reward in found) / len(found),
        f1=None,
        loss=1.0 - sum(reward for _, reward in found) / len(found),
        rows=len(found),
        predictions=(),
        answers=tuple(
            SampleAnswer(prompt=judge.asked(example.tokens), text=text[:SAMPLE_CHARACTERS], reward=reward)
            for example, (text, reward) in zip(examples[:_SAMPLES_KEPT], found[:_SAMPLES_KEPT], strict=True)
        ),
        spread=AnswerSpread.of([text for text, _ in found]),
    )


@torch.inference_mode()
def likeliest_answers(
    shared: SharedModel,
    data: TaskData,
    examples: Sequence[Example],
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[tuple[str, float]]:
    """Return the model's likeliest answer to each example's prompt, with its reward, with the weights as they are."""
    judge, writer = judge_of(data), writer_of(shared, data, {})
    found: list[tuple[str, float]] = []
    for _, chunk in _chunks(examples, 1, judge.rule.tokens):
        found += checked_answers(judge, chunk, writer.write([example.tokens for example in chunk]))
        on_progress(len(found), len(examples))
    return found


def checked_answers(judge: AnswerJudge, examples: Sequence[Example], written: Answers) -> list[tuple[str, float]]:
    """Return each answer's text and reward; the same number of answers belongs to each of ``examples``."""
    copies, found = len(written.tokens) // len(examples), []
    for number, (tokens, has_ended) in enumerate(zip(written.texts(), written.has_ended, strict=True)):
        text = judge.text(tokens)
        found.append((text.strip(), judge.reward(text, has_ended, examples[number // copies].fields)))
    return found


def draw_answers(
    shared: SharedModel, data: TaskData, on_progress: Callable[[int, int], None]
) -> tuple[TaskData, list[Drawn]]:
    """Return ``data`` with an answer of the model's own to each of its prompts, before a run, and what they get.

    Writing an answer and looking at it, which follows, count as one example each.
    """
    judge, writer, prompts = judge_of(data), writer_of(shared, data, {}), data.examples
    draws = drawn_examples.answer_draws(0, len(prompts), judge.rule.tokens)[:, None]
    examples: list[Example] = []
    drawn: list[Drawn] = []
    for first in range(0, len(prompts), _PROMPTS_AT_ONCE):
        part = prompts[first : first + _PROMPTS_AT_ONCE]
        written = writer.write([example.tokens for example in part], draws[first : first + len(part)])
        examples += [replace(each, candidates=(tokens,)) for each, tokens in zip(part, written.tokens, strict=True)]
        checked = checked_answers(judge, part, written)
        drawn += [(*each, ended) for each, ended in zip(checked, written.has_ended, strict=True)]
        on_progress(len(examples), 2 * len(prompts))
    return replace(data, examples=tuple(examples)), drawn


def begins_apart(examples: Sequence[Example], drawn: Sequence[Drawn]) -> bool:
    """Return whether the drawn answers that got most have few tokens, so that the first decides; so if none got any.

    A date or a list is written token by token, however short it is: docs/decisions/0035-rewards.md
    """
    most = max((reward for _, reward, _ in drawn), default=0.0)
    tokens = [len(each.candidates[0]) for each, (_, got, _) in zip(examples, drawn, strict=True) if got >= most / 2]
    return most <= 0.0 or median(tokens) <= _FEW_TOKENS


def _chunks(examples: Sequence[Example], copies: int, tokens: int) -> Iterator[tuple[int, Sequence[Example]]]:
    """Yield the place of the first and the examples of chunks whose texts fit into memory together."""
    width = max(len(example.tokens) for example in examples) + tokens
    size = max(1, ANSWER_TOKENS_AT_ONCE // (width * copies))
    for first in range(0, len(examples), size):
        yield first, examples[first : first + size]


def advantages_of(reward_PC: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the advantage of each answer, [P x C], from the rewards of C answers to each of P prompts.

    NumericError: all answers to each prompt are equally good.
    """
    copies = reward_PC.shape[1]
    if not np.ptp(reward_PC, axis=1).any():
        mean = float(reward_PC.mean())
        raise NumericError(
            f"all {copies} answers to each prompt were equally good (mean reward {mean:.2f}), which teaches nothing: "
            f"{_meaning(mean)}"
        )
    better_PC = (reward_PC - reward_PC.mean(axis=1, keepdims=True)) * copies / (copies - 1)
    advantages: NDArray[np.float64] = better_PC.reshape(-1) / max(_SPREAD_LEAST, np.sqrt(np.mean(better_PC**2)))
    return advantages


def _meaning(mean: float) -> str:
    """Return what it means, and what to do, where a run's answers are always equally good."""
    if mean == 0.0:
        return (
            "if no answer ever gets anything, the rule is too hard for this model. Make a run with a rule that rewards "
            "parts of an answer, with more answers to a prompt, or with a stronger model"
        )
    if mean == 1.0:
        return "if each answer gets the whole reward, the model has learnt what the rule can teach: take it by export"
    return "if this stays so, the model answers a prompt always in one way. Make a run with more answers to a prompt"


class _Hearing:
    """Keeps what each token of the answers says about the core."""

    def __init__(self, shared: SharedModel, bases: Bases) -> None:
        sides = shared.bases(bases, 0)
        dtype = shared.loss_dtype
        gained_Hr = shared.target(bases) * shared.norm_gain()[:, None]
        self._stream_Vr = shared.scored_head.of_stream(slice(None), gained_Hr)
        self._v = [v.to(dtype) for _, v in sides if v is not None]
        self._d: list[Tensor] = []
        self._h: list[list[Tensor]] = []
        self._answer: list[Tensor] = []

    def hear(self, first: int, likely_NV: Tensor, token_N: Tensor, inputs: list[Tensor], alive_N: Tensor) -> None:
        """Keep d and h of one token of each answer that had not ended; ``first``: number of the first answer here."""
        d_Nr = likely_NV @ self._stream_Vr - self._stream_Vr[token_N]
        self._d.append(d_Nr[alive_N])
        self._h.append([x[alive_N].to(v.dtype) @ v for x, v in zip(inputs, self._v, strict=True)])
        self._answer.append(torch.nonzero(alive_N)[:, 0] + first)

    def mean_gradient(self, advantage_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over all answers of the advantage times the mean gradient over the answer's tokens."""
        answer_P = torch.cat(self._answer)
        weight_N = advantage_N / answer_P.cpu().bincount(minlength=len(advantage_N)).numpy()  # MPS has no fp64
        d_Pr = torch.cat(self._d)
        d_Pr *= torch.from_numpy(weight_N).to(d_Pr.dtype).to(d_Pr.device)[answer_P][:, None]
        h = [torch.cat(each) for each in zip(*self._h, strict=True)]
        return mean_gradient(d_Pr, h, len(advantage_N))
