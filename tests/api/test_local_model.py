"""A model of one's own: what it refuses, and what its runs and learners are."""

from __future__ import annotations

import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from protocol.errors import OperatorError
from protocol.run.manifest import decode_run_untrusted
from protocol.run.method import CoreKind
from protocol.state import Coefficients
from sfnode import demo
from sfnode.api.local_model import LocalModel
from sfnode.api.runs import LocalAuthor
from sfnode.api.simulation import simulate
from sfnode.run.manifest_builder import MethodOptions
from sfnode.run.reward_options import RewardOptions
from sfnode.run.task_options import TaskOptions
from sfnode.training.model import layer_probe
from tests.support.cli_calls import call
from tests.support.tiny_models import WORDS, tiny_llama, tiny_tokenizer

TASK = TaskOptions(template="{sentence} it was", labels="bad,good")
PROMPT = TaskOptions(template="{sentence} it was")
ROWS = [{"sentence": f"a {one} {other} film", "label": at % 2} for at, one in enumerate(WORDS) for other in WORDS[:4]]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(tiny_llama(), tiny_tokenizer())


def test_make_run__few_rows__draws_directions_and_enough_make_a_dense_core(model: LocalModel) -> None:
    drawn, dense = (model.make_run(rows, TASK, steps=3) for rows in (ROWS[:31], ROWS))
    assert (drawn.manifest.method.core, drawn.basis) == (CoreKind.CANONICAL, None)
    assert dense.manifest.method.core is CoreKind.DENSE and dense.basis is not None
    assert "basis=" not in repr(dense)  # a notebook's cell that ended in a run showed 130,000 characters of it
    assert dense.manifest.task.max_tokens == 32  # the model's positions
    assert dense.manifest.task.label_words == (" bad", " good")  # spelled as `sfnode init` does after a word
    for run in (drawn, dense):
        assert decode_run_untrusted(run.signed.encode()).manifest == run.manifest and run.manifest.steps == 3
        author = LocalAuthor(run, model.learner(run, ROWS))
        author.apply(author.measure(0))
        assert author.replica.ledger.updates == 1


def test_make_run__dense_core__a_third_of_the_rate_is_left_at_the_end_for_label_words_alone(model: LocalModel) -> None:
    """TREC's runs were cut short by a rate that fell to zero; nothing was measured for rewards."""
    rewards = RewardOptions(rule_text="words:1-4", samples=2, answer_tokens=4)
    labels, answers = (model.make_run(ROWS, *given, steps=3).manifest for given in ((TASK,), (PROMPT, rewards)))
    start = labels.schedule.weight_start
    assert [labels.weight(step) for step in range(3)] == pytest.approx([start, start * 2 / 3, start / 3], abs=1)
    assert answers.method.is_dense and answers.weight(2) == 0


def test_make_run__machine_with_a_card__leaves_the_model_where_it_is(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: it moved the caller's model, and learners that had measured before met two devices."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert model.make_run(ROWS, TASK, steps=3).manifest.method.is_dense
    assert model.shared.device.type == "cpu"


def test_init__machine_with_a_card__looks_for_the_basis_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    def choose(name: str) -> torch.device:
        chosen.append(name)
        return torch.device("cpu")

    monkeypatch.setattr("sfnode.training.devices.choose_device", choose)
    task = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews", "--steps", 4)
    assert call("init", *task, "--out", tmp_path / "a.run").code == 0
    assert chosen == ["auto"]


def test_make_run__rewards_of_a_model_with_a_chat_template__puts_the_prompt_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run of the same options asks another question than that of `sfnode init`."""
    (tmp_path / "chat_template.jinja").write_text("of another model, in the folder where this program runs")
    monkeypatch.chdir(tmp_path)
    chatting = tiny_tokenizer()
    chatting.chat_template = "<user>{{ messages[0].content }}<bot>"
    model, reward = LocalModel(tiny_llama(), chatting), RewardOptions(rule_text="words:1-4", samples=2, answer_tokens=4)
    for is_chat, template in ((None, "<user>{sentence} it was<bot>"), (False, "{sentence} it was")):
        run = model.make_run(ROWS, PROMPT, replace(reward, is_chat=is_chat), steps=3)
        assert run.manifest.task.template == template


def test_make_run__dense_core_that_cannot_be__is_refused_in_words(model: LocalModel) -> None:
    with pytest.raises(OperatorError, match=r"--core dense: too few examples .*: 31, where 32 are"):
        model.make_run(ROWS[:31], TASK, method=MethodOptions(core=CoreKind.DENSE))
    with pytest.raises(OperatorError, match="--bits 2: too few"):
        model.make_run(ROWS[:31], TASK, method=MethodOptions(bits=2))
    with pytest.raises(OperatorError, match=r"--learning-rate 5 is one for .* from: 31, "):
        model.make_run(ROWS[:31], TASK, method=MethodOptions(learning_rate=5.0))
    with pytest.raises(
        OperatorError, match=r"^rewards are learnt by a dense core: too few .* from: 31, where 32 are needed$"
    ):
        model.make_run(ROWS[:31], PROMPT, RewardOptions(rule_text="contains:good"))


UNFIT: tuple[tuple[dict[str, Any], str], ...] = (
    ({"method": MethodOptions(bits=cast(Any, 3))}, "--bits 3: give 2, 4 or 8"),
    ({"batch_rows": 0}, r"--batch-rows 0"),
    ({"task": replace(TASK, labels=cast(Any, ["bad", "good"]))}, r"\['bad', 'good'\]: give one text"),
    ({"task": TaskOptions(task="nope")}, "--task 'nope': is none of .*, sst2, "),
)


@pytest.mark.parametrize(("changes", "text"), UNFIT)
def test_make_run__value_that_no_command_would_take__is_refused_in_words(
    model: LocalModel, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperatorError, match=text):
        model.make_run(ROWS, **{"task": TASK, **changes})


def test_learner__of_another_run__measures_for_no_author_and_no_simulation(model: LocalModel) -> None:
    """It signed numbers along the directions of the one run for the other."""
    one, other = (model.make_run(ROWS[:31], TASK, steps=steps) for steps in (3, 4))
    learner = model.learner(one, ROWS)
    for use in (lambda: LocalAuthor(other, learner), lambda: simulate(other, lambda _: learner, 2)):
        with pytest.raises(OperatorError, match=r"learner measures for run .*, and not for "):
            use()


def test_learner__coefficients_of_another_run__are_refused(model: LocalModel) -> None:
    """Equally many of them gave the loss of a model that is neither run's."""
    one, other = (model.make_run(ROWS[:31], TASK, steps=steps) for steps in (3, 4))
    with pytest.raises(OperatorError, match=f"of run {other.manifest.run_id.hex()}: the learner is of "):
        model.learner(one, ROWS).show(Coefficients(other.manifest))


def test_learner__less_than_no_rows__are_not_evaluated(model: LocalModel) -> None:
    """All but the last three rows were."""
    with pytest.raises(OperatorError, match="-3 rows"):
        model.learner(model.make_run(ROWS[:31], TASK), (), ROWS).evaluate(-3)


def test_learner__row_that_does_not_fit__is_named(model: LocalModel) -> None:
    run = model.make_run(ROWS, TASK)
    with pytest.raises(OperatorError, match=r"^row 2: field 'sentence' is missing"):
        model.learner(run, [ROWS[0], {"label": 1}])
    with pytest.raises(OperatorError, match="no training data"):
        model.learner(run).estimate(1, 0)


def test_learner__rows_as_programs_have_them__are_taken_as_a_file_would_be(model: LocalModel, tmp_path: Path) -> None:
    """The path as a text, label words, and a label of NumPy, as a data frame gives it, were refused."""
    run, rows = model.make_run(ROWS, TASK), [{"sentence": "a", "label": each} for each in ("good", np.int64(1), 1)]
    (path := tmp_path / "rows.jsonl").write_text('{"sentence": "a", "label": "good"}\n' * 3)
    found = [model.learner(run, given).estimate(1, 0).scalars for given in (rows, path, str(path))]
    assert found[0] == found[1] == found[2]
    with pytest.raises(OperatorError, match="label true is not a whole number"):
        model.learner(run, [{"sentence": "a", "label": np.True_}])


def test_load__path_of_the_standard_library__is_a_folder() -> None:
    assert LocalModel.load(demo.model_folder())._folder == demo.model_folder()


def test_learner__reward_that_is_an_object_of_a_dataclass__is_evaluated(tmp_path: Path) -> None:
    """A fault once: such an object has no hash, by which results were looked up."""

    @dataclass
    class Scorer:
        word: str

        def __call__(self, answer: str, row: Mapping[str, object]) -> float:
            return float(self.word in answer)

    model = LocalModel.load("embedded:tiny-opt")
    run = model.make_run(ROWS, PROMPT, RewardOptions(rule_text="words:1-4", samples=2, answer_tokens=4), steps=3)
    scored = [model.learner(run, ROWS, ROWS[:4], reward=Scorer(word)).evaluate().loss for word in ("", "#")]
    assert scored == [0.0, 1.0]


@pytest.mark.parametrize("step", [-1, 100])
def test_author__measures_a_step_that_the_run_has_not__is_refused(model: LocalModel, step: int) -> None:
    run = model.make_run(ROWS, TASK)
    with pytest.raises(OperatorError, match=r"the run has the steps 0 \.\.\. 99"):
        LocalAuthor(run, model.learner(run, ROWS)).measure(step)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_learner__reward_of_ones_own_beyond_its_bounds__is_refused(model: LocalModel, value: float) -> None:
    rule = RewardOptions(rule_text="contains:{wanted}", samples=2, answer_tokens=2)
    rows = [{**row, "wanted": "good"} for row in ROWS]
    seen: list[object] = []

    def reward(answer: str, row: object) -> float:
        seen.append(row)
        return value

    learner = model.learner(model.make_run(rows, PROMPT, rule), rows, rows[:1], reward=reward)
    with pytest.raises(OperatorError, match="return 0 to 1"):
        learner.evaluate()
    assert seen == [{"wanted": "good"}]


def test_learner__of_a_loaded_model__ends_answers_where_the_models_files_say(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(demo.model_folder(), folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 77]}', "utf-8")
    loaded = LocalModel.load(str(folder))
    rule = RewardOptions(rule_text="contains:good", samples=2, answer_tokens=2)
    judge = loaded.learner(loaded.make_run(ROWS, PROMPT, rule), ROWS).data.judge
    assert judge is not None and 77 in judge.stops  # as the worker of a node does


def test_learners__of_one_model_in_threads__measure_what_they_do_one_after_another(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers took the terms of another thread's pass: silently wrong numbers, or errors that blamed the model."""
    runs = [model.make_run(rows, TASK, steps=3) for rows in (ROWS[:31], ROWS)]
    learners = [model.learner(run, ROWS, ROWS[:8]) for run in runs * 2]
    work = [partial(each.estimate, seed, 0) for seed, each in enumerate(learners)] + [learners[0].evaluate]
    expected = [measure() for measure in work]
    monkeypatch.setattr(model.shared, "evaluations", OrderedDict())
    forward = layer_probe.hidden_states

    def slow(*given: Any) -> torch.Tensor:
        time.sleep(0.002)  # others have their turn while the layers carry this pass's terms
        return forward(*given)

    monkeypatch.setattr(layer_probe, "hidden_states", slow)
    with ThreadPoolExecutor(5) as threads:
        running = [threads.submit(measure) for measure in work]
        made = threads.submit(model.make_run, ROWS, TASK, steps=3)
        assert [each.result() for each in running] == expected
    assert made.result().basis == runs[1].basis


def test_make_run__options_of_rewards_without_a_rule__is_a_run_of_labels(model: LocalModel) -> None:
    """A fault for a day: looking for a right answer, it asked for the rule that there is not."""
    assert model.make_run(ROWS, TASK, RewardOptions(), steps=3).manifest.task.label_words == (" bad", " good")
