"""The laboratory of rewards on tiny models: its tasks' rules, what each method counts, what is kept and written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner
from transformers import PreTrainedModel

from benchmarks.rewards import __main__ as command
from benchmarks.rewards.looks import Course, plain_loss
from benchmarks.rewards.methods import Bench, ask_alone, train_evolution, train_lora, train_network
from benchmarks.rewards.page import table_of, write_docs
from benchmarks.rewards.prompts import write_prompts
from benchmarks.rewards.runs import Run, kept_or_run, merged_runs
from benchmarks.rewards.tasks import REWARD_TASKS, SAMPLES, RewardTask
from protocol.run import parse_reward
from sfnode.demo import data_file, model_folder
from sfnode.rewards import Checker
from sfnode.training.model import loading
from sfnode.training.shared_model import SharedModel

LINE = '{"name": "Ann Hill", "age": 5, "city": "Rome"}'
CHECK = {"contains": "great"}  # the model says "terrible" of the first review
ROWS = [{"prompt": json.loads(line)["sentence"]} for line in data_file().read_text("utf-8").split("\n")[:80]]
TASK = RewardTask(name="line", about="any", check=CHECK, tokens=6, files=(), rows=lambda _data: (ROWS[8:], ROWS[:8]))


def tiny() -> PreTrainedModel:
    return loading.load_causal_lm(model_folder(), torch.device("cpu"), torch.float32)


def bench(*, rounds: int = 2, answers: int = 32) -> Bench:
    folder = model_folder()
    tokenizer = loading.load_tokenizer(folder)
    spec = TASK.spec(tokenizer, 48)
    return Bench(
        title="any",
        model=tiny(),
        spec=spec,
        data=TASK.read(tokenizer, spec, Path(), 8),
        plain=[tuple(tokenizer.encode(row["prompt"])) for row in ROWS[:4]],
        seed=1,
        rounds=rounds,
        looks=frozenset({0, 1, rounds}),
        answers=answers,
        card="",
    )


def course(*strict: float) -> Course:
    count = len(strict)
    return Course(
        rounds=[*range(count)],
        answers=[128 * number for number in range(count)],
        tokens=[1_000 * number for number in range(count)],
        strict=[*strict],
        reward=[*strict],
        plain=[5.0] * (count - 1) + [5.05],
        sample=["any"] * count,
        seconds=[60.0 * number for number in range(count)],
    )


def run(method: str, seed: int, *strict: float) -> Run:
    return Run(model="any", task="yes", method=method, seed=seed, settings={}, course=course(*strict))


@pytest.mark.parametrize(
    ("name", "row", "right", "wrong"),
    [
        ("line", {"name": "Ann Hill", "line": LINE}, LINE, LINE.replace(": ", ":")),
        ("yes", {"answer": "yes"}, "Yes.", "Yes, it is"),
        ("topic", {"answer": "world"}, "world", "sports"),
        ("brief", {}, "It is a small dog.", "It is a small dog"),
        ("sums", {"answer": "58"}, "58", "34 + 14 = 58"),
    ],
)
def test_reward_tasks__answer__gets_all_only_where_it_is_strictly_right(
    name: str, row: dict[str, str], right: str, wrong: str
) -> None:
    task = REWARD_TASKS[name]
    checker = Checker(parse_reward(json.dumps({"check": task.check, "samples": SAMPLES, "tokens": task.tokens})))
    assert checker.reward(right, True, row) == 1.0
    assert checker.reward(wrong, True, row) < 1.0
    assert checker.reward(right, False, row) < 1.0  # it did not end


@pytest.mark.parametrize("name", ["line", "sums"])
def test_reward_tasks__made_up__hold_out_prompts_that_are_not_learnt_from(name: str) -> None:
    train, test = REWARD_TASKS[name].rows(Path())
    assert len(test) == 128 and len(train) > 500
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in test}
    assert REWARD_TASKS[name].rows(Path()) == (train, test)


@pytest.mark.parametrize(
    ("method", "answers"), [(train_lora, [0, 32, 64]), (train_evolution, [0, 32, 64]), (ask_alone, [0, 32])]
)
def test_methods__any__count_their_answers_and_what_passed_for_them(
    method: Callable[[Bench], Course], answers: list[int]
) -> None:
    found = method(bench())
    assert found.answers == answers
    assert found.tokens[0] == 0 and found.tokens[-1] > 32
    assert all(0 <= reward <= 1 for reward in found.reward)


def test_train_network__two_clients__count_the_basis_and_their_answers() -> None:
    found = train_network(replace(bench(), seed=2))  # with seeds 0 and 1 no message has anything to learn from
    assert [each - found.answers[0] for each in found.answers] == [0, 32, 64] and found.answers[0] > 0
    assert found.tokens[0] > 0
    assert found.plain[0] != found.plain[-1]  # the model has moved


def test_train_lora__more_rounds__the_reward_rises() -> None:
    found = train_lora(bench(rounds=6, answers=128), rate=3e-3)
    assert found.reward[-1] > found.reward[0]


def test_plain_loss__padded_texts__is_the_mean_of_each_alone_by_tokens() -> None:
    shared, texts = SharedModel(tiny()), [(3, 4, 5), (6, 7, 8, 9, 10)]
    each = [plain_loss(shared, {}, [text]) * (len(text) - 1) for text in texts]
    assert plain_loss(shared, {}, texts) == pytest.approx(sum(each) / 6, rel=1e-5)


def test_kept_or_run__again__takes_what_is_kept_unless_the_settings_differ(tmp_path: Path) -> None:
    made: list[Course] = []

    def measure() -> Course:
        made.append(course(0.1, 0.2))
        return made[-1]

    subject = {"model": "any", "task": "yes", "method": "LoRA", "seed": 0, "settings": {"rounds": 1}}
    first = kept_or_run(tmp_path, subject, measure)
    assert kept_or_run(tmp_path, subject, measure) == first and len(made) == 1
    kept_or_run(tmp_path, {**subject, "settings": {"rounds": 2}}, measure)
    assert len(made) == 2


def test_renewed__same_subject__has_the_new_run_in_the_place_of_the_old() -> None:
    old, other, new = run("LoRA", 0, 0.1), run("LoRA", 1, 0.1), run("LoRA", 0, 0.3)
    assert merged_runs([old, other], [new]) == [new, other]


def test_write_docs__called_twice__keeps_what_was_not_measured_now(tmp_path: Path) -> None:
    (tmp_path / "rewards.md").write_text("a\n<!-- measured: rewards -->\n<!-- end -->\nb\n", "utf-8")
    write_docs([run("network", 0, 0.0, 0.5), run("network", 1, 0.0, 0.7)], tmp_path)
    write_docs([run("alone", 0, 0.0, 0.1)], tmp_path)
    page = (tmp_path / "rewards.md").read_text("utf-8")
    assert "| this network | 60.0 | 50.0, 70.0 | 0.60 | 128 | 1,000 | +1.0 % | 1.0 |" in page
    assert "best of 4, chosen by the check | 10.0" in page
    picture = ElementTree.fromstring((tmp_path / "rewards" / "yes.svg").read_text("utf-8"))
    assert picture.tag.endswith("svg")


def test_table_of__nothing__says_so() -> None:
    assert table_of([]) == ["Not measured yet."]


def test_write_prompts__made_up_task__files_fit_the_rule(tmp_path: Path) -> None:
    found = CliRunner().invoke(write_prompts, ["line", str(tmp_path), "--held-out", "4"])
    assert found.exit_code == 0, found.output
    checker = Checker(parse_reward((tmp_path / "rule.json").read_text("utf-8")))
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 4 and all(checker.reward(row["line"], True, row) == 1.0 for row in rows)


def test_write_prompts__data_missing__says_which_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(write_prompts, ["yes", str(tmp_path / "out"), "--data", str(tmp_path)])
    assert found.exit_code != 0 and "train_1024.jsonl is missing" in found.output


def test_command__quick__compares_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK", replace(command.QUICK, rounds=1, held_out=2, plain=2))
    found = CliRunner().invoke(command.main, ["--quick", "--work", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert all(f"| {name} |" in found.output for name in ("the model alone", "this network", "evolution"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tasks", "chess"], "--tasks 'chess': known are line"),
        (["--methods", "magic"], "--methods 'magic'"),
        (["--clients", "1", "--write", "docs"], "leave out --clients"),
    ],
)
def test_command__option_that_does_not_fit__says_what_does(options: list[str], said: str) -> None:
    found = CliRunner().invoke(command.main, options)
    assert found.exit_code != 0 and said in found.output
