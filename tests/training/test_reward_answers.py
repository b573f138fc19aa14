"""What people see of answers: asked, evaluated, all equally good; and how long they take."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from protocol.errors import NumericError, OperatorError
from protocol.run.reward import parse_reward
from protocol.state.coefficients import CoefficientLayout, Coefficients
from protocol.subspace.basis_file import Bases, decode_basis_untrusted
from sfnode.cli.ask import _shown
from sfnode.demo import model_folder
from sfnode.training.bench.answer_cost import AnswerSize, bench_answer
from sfnode.training.estimator import Estimator
from sfnode.training.model import loading
from sfnode.training.model_questions import Comparison, Reply, ask_model, row_of
from sfnode.training.reward_estimate import advantages_of
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.answer_judge import AnswerJudge
from sfnode.training.task.encoding import read_task
from tests.support.reward_runs import RULE, WANTED, reward_manifest, rewarded, write_prompts
from tests.support.task_specs import CLASSIFICATION, task_spec, write_rows
from tests.support.tiny_models import panicking

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bases() -> Bases:
    manifest, basis = reward_manifest()
    return Bases(manifest, decode_basis_untrusted(manifest, basis))


def session(bases: Bases, rows: Path) -> Estimator:
    tokenizer = loading.load_tokenizer(model_folder())
    shared = SharedModel(loading.load_causal_lm(model_folder(), CPU, torch.float32))
    return Estimator(shared, bases, read_task(tokenizer, bases.manifest.task, rows, rows))


def asked(bases: Bases, *questions: str, moved: int = 0) -> list[Comparison]:
    coefficients = Coefficients(bases.manifest)
    numbers = np.full(CoefficientLayout(bases.manifest).size, moved, dtype=np.int64)
    numbers[0] = 1  # the rows that all others are divided by
    coefficients.set_flat(0, numbers)
    return ask_model(model_folder(), bases, coefficients, questions, torch.float32, 40)


def test_ask__reward__is_said_where_the_question_has_what_the_rule_reads(bases: Bases) -> None:
    good, bad, unknown = asked(
        bases,
        '{"sentence": "a good film", "wanted": "great"}',
        '{"sentence": "a good film", "wanted": "terrible"}',
        "a good film",
    )
    assert (good.before.reward, bad.before.reward, unknown.before.reward) == (1.0, 0.0, None)
    assert good.before == good.after and good.before.text == unknown.before.text
    tokenizer = loading.load_tokenizer(model_folder())
    assert 0 < len(tokenizer.encode(" " + good.before.text, add_special_tokens=False)) <= RULE["tokens"]
    assert [_shown(each.before, []) for each in (good, unknown)] == [
        f"{good.before.text}  (reward 1.00)",
        good.before.text,
    ]


def test_ask__moved_core__changes_the_answer_after_and_not_the_one_before(bases: Bases) -> None:
    (still,), (moved,) = asked(bases, "a good film"), asked(bases, "a good film", moved=1 << 22)
    assert still.before == moved.before and moved.after != moved.before
    assert isinstance(moved.after, Reply)


def test_row_of__reward__has_placeholders_for_fields_of_the_rule() -> None:
    task = rewarded(task_spec(CLASSIFICATION))
    assert row_of(task, "a film") == {"label": 0, "wanted": "?", "sentence": "a film"}
    assert row_of(task, '{"sentence": "a", "wanted": "b"}') == {"label": 0, "wanted": "b", "sentence": "a"}


def test_evaluate__rewards__has_the_answers_to_the_first_rows(bases: Bases, tmp_path: Path) -> None:
    rows = write_prompts(tmp_path / "rows.jsonl")
    found = session(bases, rows).evaluate()
    assert found.rows == 8 and 0 < found.accuracy < 1 and found.loss == pytest.approx(1 - found.accuracy)
    assert [each.prompt for each in found.answers] == [
        f"a {word} film {at} It was" for at, word in enumerate(("good", "bad", "fine"))
    ]
    for each, wanted in zip(found.answers, WANTED, strict=False):
        assert each.reward == float(wanted in each.text)


def test_evaluate__long_prompts__lose_their_middle(bases: Bases, tmp_path: Path) -> None:
    """Samples of prompts that end in one instruction looked alike: each had the end of the instruction alone."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"sentence": "Is it\na " + "very " * 30 + "film?", "wanted": "great"}])
    (answer,) = session(bases, rows).evaluate().answers
    assert len(answer.prompt) == 80 and answer.prompt.startswith("Is it a very")
    assert " ... " in answer.prompt and answer.prompt.endswith("very film? It was")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("xylophone", r"mean reward 0\.00\).*the rule is too hard for this model\. Make a run with a rule that"),
        ("", r"mean reward 0\.00\)"),
    ],
)
def test_estimate__no_answer_gets_anything__says_what_it_means(
    bases: Bases, wanted: str, said: str, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"sentence": "a film", "wanted": wanted}] * 8)
    with pytest.raises(NumericError, match=f"all 4 answers to each prompt were equally good .{said}"):
        session(bases, rows).estimate(7, 0)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (("<", "system\nYou help.", ">", "\n", "<", "user\nIs it?", ">", "\n", "<", "assistant\n"), "Is it?"),
        (("<", "user", ">", "\n\nIs it?", ">", "<", "assistant", ">", "\n\n"), "Is it?"),
        (("<", " Is it?", ">"), "Is it?"),
        (("Is it?\nassistant",), "Is it? assistant"),
        (("<",), ""),
    ],
)
def test_judge__prompt_in_a_chat_template__is_shown_as_people_wrote_it(written: tuple[str, ...], shown: str) -> None:
    """Samples of answers ended with the template's last mark: "in one line.\\nassistant"."""
    texts = list(written)
    tokenizer: Any = SimpleNamespace(
        eos_token_id=2,
        all_special_ids=[number for number, text in enumerate(texts) if text in "<>"],
        decode=lambda tokens, **_: "".join(texts[token] for token in tokens if texts[token] not in "<>"),
    )
    rule = parse_reward(json.dumps({"check": {"exact": "yes"}, "samples": 2, "tokens": 8}))
    assert AnswerJudge(tokenizer, rule).asked(range(len(texts))) == shown


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("yes", 1.0), (" \x0byes\r\n", 1.0), ("\u00a0yes", 0.0), ("yes\u2028", 0.0), (" " * 16_384 + "yes", 0.0)],
)
def test_judge__white_space_around_an_answer__is_that_of_the_rule(answer: str, reward: float) -> None:
    """A fault once: all white space of Unicode was stripped, and before the cut: other readers gave other rewards."""
    tokenizer: Any = SimpleNamespace(eos_token_id=2, decode=lambda *_, **__: answer)
    rule = parse_reward(json.dumps({"check": {"exact": "yes"}, "samples": 2, "tokens": 8}))
    judge = AnswerJudge(tokenizer, rule)
    assert judge.reward(judge.text([1]), True, ()) == reward
    own = AnswerJudge(tokenizer, rule, lambda text, _: float(text == "yes"))
    assert own.reward(own.text([1]), True, ()) == 1.0


@pytest.mark.parametrize(
    ("reward", "said"), [(1.0, "1.00), which .*has learnt what the rule"), (0.1, "0.10), which .*always in one way")]
)
def test_advantages__answers_that_are_equally_good__say_what_it_means(reward: float, said: str) -> None:
    with pytest.raises(NumericError, match=r"mean reward " + said.replace(")", r"\)", 1)):
        advantages_of(np.full((2, 6), reward))


def test_bench_answer__tiny_shape__reports_rates_and_the_ratio() -> None:
    size = AnswerSize(answers=4, samples=2, tokens=3)
    found: dict[str, Any] = bench_answer("opt-tiny", size=size, dtype="fp32", repeats=2, device="cpu")
    assert set(found["seconds"]) == {"message", "generate"} and found["ratio_to_generate"] > 0
    assert found["tokens_per_s"] == pytest.approx(3 * found["answers_per_s"])
    assert (found["answers"], found["samples"], found["tokens"], found["shape"]) == (4, 2, 3, "opt-tiny")


def test_bench_answer__answers_that_are_no_multiple__says_what_to_give() -> None:
    with pytest.raises(OperatorError, match=r"--answers 6 --samples 4: .*Give a multiple of them"):
        bench_answer("opt-tiny", size=AnswerSize(answers=6, samples=4, tokens=3), dtype="fp32", repeats=1, device="cpu")


def test_answer__the_tokenizer_panics_on_its_tokens__is_an_error_in_words(bases: Bases, tmp_path: Path) -> None:
    """A panic of its Rust code is no `Exception`: a worker ended with a traceback, and so did `sfnode ask`."""
    tokenizer = panicking(loading.load_tokenizer(model_folder()))
    rows = read_task(tokenizer, bases.manifest.task, write_prompts(tmp_path / "rows.jsonl"), None)
    assert rows.judge is not None
    with pytest.raises(OperatorError, match=r"^an answer: the model's tokenizer fails: index out of bounds"):
        rows.judge.text([5, 6])
