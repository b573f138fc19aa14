"""What a run's model answers, before and after: the updates count, and every kind of task can be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers.processors import ByteLevel

from protocol.errors import OperatorError
from protocol.state import CoefficientLayout, Coefficients
from protocol.subspace import Bases
from sfnode.model_files import resolve_model
from sfnode.training.answers import Answers, AnswerWriter
from sfnode.training.model import loading
from sfnode.training.model_questions import Comparison, ask_model, row_of
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, PromptEncoder, TaskData, batch_of
from tests.support.cli_calls import call
from tests.support.daemons import demo_run
from tests.support.task_specs import CHOICE, CLASSIFICATION, COMPLETION, LONG_WORDS, TEXT, task_spec
from tests.support.tiny_models import panicking

MODEL = resolve_model("embedded:tiny-opt").path
CHOICES = json.dumps({"sentence": "a film that was", "choices": ["good", "really bad", "long"]})


def asked(fields: dict[str, Any], *questions: str, moved: int = 0, tokens: int = 6) -> list[Comparison]:
    """By the embedded model, whose coefficients are all ``moved``."""
    manifest = replace(demo_run(steps=4).manifest, task=task_spec({**fields, "max_tokens": 32}))
    coefficients = Coefficients(manifest)
    coefficients.set_flat(0, np.full(CoefficientLayout(manifest).size, moved, dtype=np.int64))
    return ask_model(MODEL, Bases(manifest), coefficients, questions, torch.float32, tokens)


@pytest.mark.parametrize(
    ("fields", "question", "answers"),
    [
        ({**CLASSIFICATION, "label_words": [" no", " yes"]}, "a good film", {"no", "yes"}),
        (LONG_WORDS, "a good film", {"not dull", "bright", "not a bad film"}),
        (CHOICE, CHOICES, {"good", "really bad", "long"}),
    ],
)
def test_ask__labels_and_choices__have_shares_that_add_up(
    fields: dict[str, Any], question: str, answers: set[str]
) -> None:
    (found,) = asked(fields, question)
    assert found.before == found.after
    assert found.before.text in answers
    assert len(found.before.shares) == len(answers)
    assert sum(found.before.shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({**CLASSIFICATION, "label_words": [" no", " yes"]}, "a good film"),
        (LONG_WORDS, "a good film"),
        (CHOICE, CHOICES),
    ],
)
def test_ask__labels_and_choices__have_the_shares_of_their_losses_from_one_row(
    fields: dict[str, Any], question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: each of L words that one token does not set apart made L rows, L x L in all."""
    (example,), data, shared = _as_trained({**fields, "max_tokens": 32}, question)
    passed: list[int] = []
    hidden = SharedModel.hidden

    def noted(self: SharedModel, batch: Any) -> torch.Tensor:
        passed.append(len(batch.tokens))
        return hidden(self, batch)

    monkeypatch.setattr(SharedModel, "hidden", noted)
    (found,) = asked(fields, question)
    checked_head, *others = passed
    assert checked_head == 3
    before_and_after = [each for each in others if each != 2]  # two rows check shared prompts
    assert before_and_after[-2:] == [1, 1]
    assert len(before_and_after) <= 4  # the first two check shared prompts
    labels = [replace(example, label=number) for number in range(len(found.before.shares))]
    losses = shared.scores(batch_of(data, labels, 1, shared.device), data.label_tokens).loss
    assert found.before.shares == pytest.approx((-losses).exp().tolist(), abs=1e-5)


def _as_trained(fields: dict[str, Any], question: str) -> tuple[tuple[Example, ...], TaskData, SharedModel]:
    encoder = PromptEncoder(loading.load_tokenizer(MODEL), task := task_spec(fields))
    shared = SharedModel(loading.load_causal_lm(MODEL, torch.device("cpu"), torch.float32))
    return encoder.encode(row_of(task, question), ""), TaskData(label_tokens=encoder.label_tokens), shared


@pytest.mark.parametrize(("fields", "question"), [(COMPLETION, "a film"), (TEXT, "this film was")])
def test_ask__texts__are_gone_on_with(fields: dict[str, Any], question: str) -> None:
    (found,) = asked(fields, question)
    assert found.before.shares == ()
    assert found.before.text.strip()
    assert question not in found.before.text


@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("films", [1, 7, 8, 9, 20])
def test_ask__text_longer_than_the_runs_rows__is_gone_on_with_from_its_end(
    has_start: bool, films: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: the model went on with the first tokens of a long text, and its end did not count."""
    tokenizer: Any = loading.load_tokenizer(MODEL)
    if not has_start:
        tokenizer.backend_tokenizer.post_processor = ByteLevel(trim_offsets=False)
    text = "film " * films + "and it was a very good one, as we all had hoped for so long"
    body, room = tokenizer.encode(text, add_special_tokens=False), 32 - has_start
    assert len(body) > room or films == 1
    given: list[list[int]] = []
    written = AnswerWriter.write

    def write(writer: AnswerWriter, texts: list[tuple[int, ...]]) -> Answers:
        given.append([*texts[0]])
        return written(writer, texts)

    monkeypatch.setattr(loading, "load_tokenizer", lambda _: tokenizer)
    monkeypatch.setattr(AnswerWriter, "write", write)
    asked(TEXT, text)
    assert given[0] == tokenizer.encode("")[:has_start] + body[-room:]


def test_ask__more_tokens_than_the_model_has_positions__are_as_many_as_it_has() -> None:
    """It ended in a traceback of torch."""
    (found,) = asked(TEXT, "this film was", tokens=5_000)
    assert len(found.before.text) > len(asked(TEXT, "this film was")[0].before.text)


def test_ask__coefficients__change_the_answer_after_and_not_the_one_before() -> None:
    yes_no = {**CLASSIFICATION, "label_words": [" no", " yes"]}
    (still,), (moved,) = asked(yes_no, "a good film"), asked(yes_no, "a good film", moved=1 << 22)
    assert moved.before == still.before
    assert moved.after != still.after


def test_ask__several_questions__answers_in_their_order() -> None:
    yes_no = {**CLASSIFICATION, "label_words": [" no", " yes"]}
    row = '{"sentence": "a good film", "label": "yes"}'  # as people's rows are; it was refused for its label
    questions = ("a good film", "a bad film", '{"sentence": "a good film"}', row)
    found = asked(yes_no, *questions)
    assert [each.question for each in found] == [*questions]
    assert found[0].before == found[2].before == found[3].before != found[1].before


@pytest.mark.parametrize(
    ("fields", "question", "said"),
    [
        (
            CHOICE,
            "a film",
            r"""several fields; write them as JSON: '{"sentence": "...", "choices": \["...", "..."\]}'""",
        ),
        ({**CLASSIFICATION, "template": "{a} and {b}"}, "x", r"""write them as JSON: '{"a": "...", "b": "..."}'"""),
    ],
)
def test_row_of__prompt_with_several_fields__shows_how_to_write_them(
    fields: dict[str, Any], question: str, said: str
) -> None:
    with pytest.raises(OperatorError, match=said):
        row_of(task_spec(fields), question)


def test_ask__field_that_the_prompt_names_twice_and_whole_numbers__are_asked_about() -> None:
    """A fault once: a field named twice counted as several, and a number, which rows may have, was refused."""
    twice = {**CLASSIFICATION, "template": "{a} {a} it was"}
    plain, digits, number = asked(twice, "5", '{"a": "5"}', '{"a": 5}')
    assert plain.before == digits.before == number.before


def test_ask__row_that_does_not_fit__is_named_with_its_number() -> None:
    with pytest.raises(OperatorError, match=r"question 2: .* field 'sentence' is missing"):
        asked(CLASSIFICATION, "a film", '{"text": "a film"}')


def test_command__run_with_a_dense_core__answers_at_any_step(tmp_path: Path) -> None:
    task = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews", "--steps", 4)
    made = json.loads(call("init", *task, "--out", tmp_path / "a.run", "--json").stdout)
    own = ("--basis", made["basis"], "--invite", made["invitation"], "--data-dir", tmp_path / "node")
    assert call("join", "--run", tmp_path / "a.run", *own, "--exit-when-finished", "--threads", 1).code == 0
    told = call("ask", "--data-dir", tmp_path / "node", "a good film")
    assert told.stdout.splitlines()[0] == "a good film"
    assert [line.strip()[:15].strip() for line in told.stdout.splitlines()[1:3]] == ["the model alone", "the run now"]
    (first,), (last,) = (
        json.loads(call("ask", "--data-dir", tmp_path / "node", "a good film", *more, "--json").stdout)
        for more in (("--at-step", 0), ())
    )
    assert first["before"] == first["after"] == last["before"] != last["after"]


def test_ask__the_tokenizer_panics_on_what_the_model_wrote__is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A panic of its Rust code is no `Exception`: `sfnode ask` ended with a traceback."""
    tokenizer = panicking(loading.load_tokenizer(MODEL))
    monkeypatch.setattr(loading, "load_tokenizer", lambda _folder: tokenizer)
    with pytest.raises(OperatorError, match=r"^an answer: the model's tokenizer fails: index out of bounds"):
        asked(COMPLETION, "a film")
