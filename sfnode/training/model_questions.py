"""Ask a run's model questions, before and after its training."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run import TaskKind, TaskSpec, parse_reward
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.rows import field_names
from sfnode.training.answers import AnswerWriter
from sfnode.training.model import check_model, check_whole_fits, fold_weights, loading
from sfnode.training.reward_estimate import likeliest_answers
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import AnswerJudge, Example, PromptEncoder, RowBatch, TaskData, scoring

_NO_RESPONSE = "."  # placeholder for the response that the model is asked for
_NOT_GIVEN = "?"  # placeholder for what the rule of rewards reads of a row; some token, for a right answer
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Holds a model's answer to one prompt.

    Attributes:
        text: the likeliest label word or choice; for a completion or a reward, the generated text.
        shares: probability of each label word or choice, in their order; empty for a text of the model's own.
        reward: of an answer in a run that learns from rewards; None where the question lacks what the rule reads.
    """

    text: str
    shares: tuple[float, ...]
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Holds one question with the model's answers before any training and at the run's present state."""

    question: str
    before: Reply
    after: Reply


def ask_model(
    folder: Path, bases: Bases, coefficients: Coefficients, questions: Sequence[str], dtype: torch.dtype, tokens: int
) -> list[Comparison]:
    """Return the answers to all questions, in their order.

    Args:
        folder: of the run's model.
        coefficients: of the trained model; ``bases`` holds the basis of each epoch.
        questions: each is the text of the template's only field, or a row of the data as a JSON object.
        tokens: maximum length of a generated text, within the model's positions; with rewards, the rule has one.

    OperatorError: a question does not fit the task, or the model is not the run's.
    """
    check_model(folder, bases.manifest.model)
    tokenizer, task = loading.load_tokenizer(folder), bases.manifest.task
    encoder = PromptEncoder(tokenizer, task, loading.token_rows(loading.empty_model(folder)))
    rows = [row_of(task, question) for question in questions]
    examples = [
        _end_of(encoder.encode(row, f"question {number}: {question!r}"))
        for number, (row, question) in enumerate(zip(rows, questions, strict=True), 1)
    ]
    longest = 1 + max(example.width for example in examples)
    tokens = max(1, min(tokens, (loading.positions_of(folder) or tokens + longest) - longest))
    check_whole_fits(folder, dtype)
    shared = SharedModel(loading.load_causal_lm(folder, _CPU, dtype))
    stops = loading.named_stops(folder, bases.manifest.model.usage)
    data = TaskData(label_tokens=encoder.label_tokens, judge=AnswerJudge.of(tokenizer, task, stops=stops))
    asked = _Asked(shared, tokenizer, task, data, stops, tokens)
    before = [asked.reply(row, example) for row, example in zip(rows, examples, strict=True)]
    epochs = {epoch: coefficients.core(epoch) for epoch in coefficients.epochs()}
    for name, weight in fold_weights(bases, epochs, shared.switch.base).items():
        shared.switch.base[name].copy_(weight)
    after = [asked.reply(row, example) for row, example in zip(rows, examples, strict=True)]
    return [
        Comparison(question=question, before=old, after=new)
        for question, old, new in zip(questions, before, after, strict=True)
    ]


def _end_of(pieces: tuple[Example, ...]) -> Example:
    """Return the last tokens of a text in pieces, as many as a piece has: they are what the model goes on with."""
    if len(pieces) == 1:
        return pieces[0]
    before, last = (each.candidates[0] for each in pieces[-2:])
    whole = before + last[not pieces[0].tokens :]  # without START, a piece repeats a token (SPEC 5.5)
    return replace(pieces[0], candidates=(whole[-len(before) :],))


def row_of(task: TaskSpec, question: str) -> dict[str, object]:
    """Return a data row that asks ``question``, with placeholders in the fields of the answer. OperatorError."""
    wanted = [*dict.fromkeys(field_names(task.template or task.completion, "template"))]
    usual: dict[str, object] = {}
    if task.kind is TaskKind.COMPLETION:
        usual |= dict.fromkeys(field_names(task.completion, "completion"), _NO_RESPONSE)
    try:
        given = json.loads(question)
    except (ValueError, RecursionError):
        given = None
    if task.kind is TaskKind.REWARD:
        usual |= dict.fromkeys(parse_reward(task.completion).fields, _NOT_GIVEN)
    if isinstance(given, dict):
        digits = {name: str(value) for name, value in given.items() if type(value) is int}
        return {**usual, **given, **digits, "label": 0}  # no answer depends on it, and people's rows have words there
    if len(wanted) != 1 or task.kind is TaskKind.CHOICE:
        fields = [*wanted, *(["choices"] if task.kind is TaskKind.CHOICE else [])]
        example = json.dumps({field: ["...", "..."] if field == "choices" else "..." for field in fields})
        raise OperatorError(f"{question!r}: this run's prompts have several fields; write them as JSON: '{example}'")
    return {**usual, wanted[0]: question, "label": 0}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Answers prompts with one model at its current weights."""

    shared: SharedModel
    tokenizer: PreTrainedTokenizerBase
    task: TaskSpec
    data: TaskData
    stops: frozenset[int]  # tokens that end a text
    tokens: int  # maximum length of a text

    @torch.inference_mode()
    def reply(self, row: Mapping[str, object], example: Example) -> Reply:
        if self.task.kind is TaskKind.COMPLETION:
            given = example.tokens if self.task.template else (*example.tokens, *example.candidates[0])
            writer = AnswerWriter(self.shared, {}, stops=self.stops, tokens_max=self.tokens)
            (written,) = writer.write([given]).texts()
            return Reply(text=loading.decoded(self.tokenizer, written), shares=())
        if self.data.judge is not None:
            ((text, reward),) = likeliest_answers(self.shared, self.data, [example])
            is_judged = all(row.get(name) != _NOT_GIVEN for name in self.data.judge.rule.fields)
            return Reply(text=text, shares=(), reward=reward if is_judged else None)
        choices: Any = row.get("choices", ())  # a choice task has them: the encoder checks it
        words = self.task.label_words or [str(choice) for choice in choices]
        shares = self._scores(example).float().softmax(dim=0).tolist()
        return Reply(text=words[shares.index(max(shares))].strip(), shares=tuple(shares))

    def _scores(self, example: Example) -> Tensor:
        """Return the scores of the label words or choices, [C]."""
        batch, shared = self.shared.batch(self.data, [example]), self.shared
        if isinstance(batch, RowBatch):
            return shared.label_logits(batch, self.data.label_tokens)[0]
        hidden_AH = shared.hidden(batch).flatten(0, 1)
        likelihood_P, _, _ = scoring.likelihoods(shared.scored_head, hidden_AH, batch, shared.loss_dtype)
        return scoring.candidate_scores(scoring.candidate_means(likelihood_P, batch), batch)[0]
