"""Runs of rewards whose rows name a right answer: messages as for completions; the rule judges what is drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from protocol.crypto.keys import Signer
from sfnode.api.local_model import LocalModel
from sfnode.api.runs import LocalAuthor
from sfnode.run.reward_options import RewardOptions
from sfnode.run.task_options import TaskOptions
from sfnode.training.estimator import Estimator
from sfnode.training.model_questions import row_of
from sfnode.training.task import PromptEncoder
from tests.support.tiny_models import WORDS, tiny_llama, tiny_tokenizer

PROMPT = TaskOptions(template="{sentence} it was")
RULE = RewardOptions(rule_text="exact:{answer}", samples=2, answer_tokens=4)
ALICE = Signer(b"alice".ljust(32, b"."))
ROWS = [{"sentence": f"a {one} {other}", "answer": "good"} for one in WORDS for other in WORDS[:4]]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "film"
    return LocalModel(tiny_llama(), tokenizer, owner=ALICE)


def test_message__rows_that_name_a_right_answer__is_that_of_a_completion(model: LocalModel) -> None:
    run = model.make_run(ROWS, PROMPT, RULE, steps=3)
    learner = model.learner(run, ROWS)
    end = model.tokenizer.eos_token_id
    assert {example.candidates for example in learner.data.examples} == {((4, end),)}  # "good", and its end
    completions = Estimator(model.shared, run.bases(), replace(learner.data, judge=None))
    found, same = (each.estimate(7, 0) for each in (learner, completions))
    assert found.scalars == same.scalars and found.rows == found.scalars[0] == 16
    assert found.loss == pytest.approx(1 - math.exp(-same.loss), abs=0.02)  # one less the chance of a right token


def test_run__rows_that_name_a_right_answer__learns_to_write_it(model: LocalModel) -> None:
    """Where the right answer was never drawn, nothing was learnt: of topics, one of four words, always the same one."""
    run = model.make_run(ROWS, PROMPT, RULE, steps=48)  # with 24, one of three owners' keys left an answer to learn
    author = LocalAuthor(run, learner := model.learner(run, ROWS, ROWS[:8]), ALICE)
    before = learner.evaluate()
    for step in range(48):
        author.apply(author.measure(step))
    learner.show(author.replica.coefficients())
    after = learner.evaluate()
    assert (before.accuracy, after.accuracy) == (0.0, 1.0), (before, after)
    assert [each.text for each in after.answers] == ["good"] * 3


def test_make_run__rows_that_name_a_right_answer__takes_messages_of_two_rows(model: LocalModel) -> None:
    run = model.make_run(ROWS, PROMPT, replace(RULE, samples=4), steps=3, batch_rows=2)
    assert model.learner(run, ROWS).estimate(7, 0).rows == run.manifest.task.batch_rows == 2


def test_make_run__answers_that_are_to_be_drawn__are(model: LocalModel) -> None:
    run = model.make_run(ROWS, PROMPT, replace(RULE, answer=""), steps=3)
    assert model.learner(run, ROWS).data.draws_answers


def test_row_of__tokenizer_without_an_end_token__can_be_asked(model: LocalModel) -> None:
    """The empty text that stood for the right answer had no token, so that `ask` refused each question."""
    task = model.make_run(ROWS, PROMPT, RULE, steps=3).manifest.task
    tokenizer = tiny_tokenizer()
    assert tokenizer.eos_token_id is None
    assert PromptEncoder(tokenizer, task).encode(row_of(task, "a film"), "")[0].tokens
