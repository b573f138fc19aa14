"""How good a model's answers are between its rounds, and what they have cost so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from benchmarks.measures import say
from sfnode.training.model import MatrixTerm, layer_probe
from sfnode.training.reward_estimate import checked_answers, judge_of, writer_of
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData

_AT_ONCE = 32  # prompts that are answered, and texts that are read

Terms = Mapping[str, MatrixTerm]


@dataclass(slots=True, kw_only=True)
class Course:
    """A run from its start to its end: one entry of each list for a look.

    Attributes:
        rounds, answers: so many had been made; tokens: that had passed the model forward for them.
        strict: share of the held-out prompts whose likeliest answer gets the whole reward; reward: their mean.
        plain: mean loss of a token of plain text, which a run shall not harm.
        sample: the answer to the first held-out prompt.
        seconds: of training, without the looks.
        card: the graphics card that computed, empty for a CPU.
    """

    rounds: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    strict: list[float] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    sample: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    card: str = ""


class Costs:
    """Counts the tokens that pass a model forward, and the time, while a method trains."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.tokens, self.seconds = 0, 0.0
        self._is_on = False
        layer_probe.body_of(model).register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _module: nn.Module, _inputs: tuple[object, ...], named: dict[str, object]) -> None:
        tokens = named["input_ids"]
        if self._is_on and isinstance(tokens, torch.Tensor):
            self.tokens += tokens.numel()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what happens in the block."""
        self._is_on, started = True, time.monotonic()
        try:
            yield
        finally:
            self._is_on = False
            self.seconds += time.monotonic() - started


class Watch:
    """Looks at one run, and keeps its course."""

    def __init__(
        self, title: str, shared: SharedModel, data: TaskData, plain: Sequence[tuple[int, ...]], card: str
    ) -> None:
        self.course = Course(card=card)
        self._title, self._shared, self._data, self._plain = title, shared, data, plain

    @torch.inference_mode()
    def look(self, rounds: int, answered: int, costs: Costs, terms: Terms) -> None:
        """Answer the held-out prompts, each in the likeliest way, with ``terms`` added to the model's layers."""
        rewards, sample = self._rewards(terms)
        course = self.course
        course.rounds.append(rounds)
        course.answers.append(answered)
        course.tokens.append(costs.tokens)
        course.seconds.append(round(costs.seconds, 1))
        course.strict.append(round(sum(each >= 1.0 for each in rewards) / len(rewards), 4))
        course.reward.append(round(sum(rewards) / len(rewards), 4))
        course.plain.append(round(plain_loss(self._shared, terms, self._plain), 5))
        course.sample.append(sample)
        say(
            f"{self._title}: {answered:6,} answers, strictly right {100 * course.strict[-1]:5.1f} %, reward "
            f"{course.reward[-1]:.3f}, plain text {100 * (course.plain[-1] / course.plain[0] - 1):+.1f} %, "
            f"{costs.seconds:,.0f} s: {sample!r}"
        )

    def _rewards(self, terms: Terms) -> tuple[list[float], str]:
        writer = writer_of(self._shared, self._data, terms)
        found: list[tuple[str, float]] = []
        for chunk in _chunks(self._data.evaluation_examples):
            written = writer.write([example.tokens for example in chunk])
            found += checked_answers(judge_of(self._data), chunk, written)
        return [reward for _, reward in found], found[0][0]


def _chunks(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    for first in range(0, len(examples), _AT_ONCE):
        yield examples[first : first + _AT_ONCE]


@torch.inference_mode()
def plain_loss(shared: SharedModel, terms: Terms, texts: Sequence[tuple[int, ...]]) -> float:
    """Mean loss of a token that follows others in ``texts``."""
    total, count = 0.0, 0
    for first in range(0, len(texts), _AT_ONCE):
        chunk = texts[first : first + _AT_ONCE]
        width = max(map(len, chunk))
        tokens_NT = torch.tensor([[*text, *[0] * (width - len(text))] for text in chunk], device=shared.device)
        targets_NT = torch.tensor([[*text, *[-100] * (width - len(text))] for text in chunk], device=shared.device)
        with shared.pass_context.carrying(terms, 1, tokens_NT.numel()):
            hidden_NTH = layer_probe.hidden_states(shared.model, tokens_NT)[:, :-1]
            logits = shared.scored_head.logits(hidden_NTH.flatten(0, 1).to(shared.loss_dtype), None, slice(None))
        total += float(functional.cross_entropy(logits, targets_NT[:, 1:].flatten(), reduction="sum"))
        count += int((targets_NT[:, 1:] >= 0).sum())
    return total / count
