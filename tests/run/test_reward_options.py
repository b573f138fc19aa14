"""``sfnode init --reward``: short forms, JSON and files become the rule of the manifest; mistakes teach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.reward import parse_reward
from protocol.run.task import Objective, TaskKind
from sfnode.cli.new_run import task_of
from sfnode.model_files.resolve import resolve_model
from sfnode.run.manifest_builder import MethodOptions
from sfnode.run.reward_options import RewardOptions
from sfnode.run.run_draft import RunOptions
from sfnode.run.task_options import DataOptions, TaskOptions, reward_texts
from tests.support.cli_calls import assert_teaches, call

CHECK = {"sum": [[3, {"exact": "{answer}"}], [1, {"words": [1, 1]}]]}


def document_of(text: str, samples: int | None = None, tokens: int | None = None) -> dict[str, object]:
    document = RewardOptions(rule_text=text, samples=samples, answer_tokens=tokens).document
    parse_reward(document)
    result: dict[str, object] = json.loads(document)
    return result


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("exact:{answer}", {"exact": "{answer}"}),
        ("exact: yes: no", {"exact": "yes: no"}),
        ("contains: yes", {"contains": "yes"}),
        ("contains:.", {"contains": "."}),
        ("regex:[0-9]{{2}}:{a}", {"regex": "[0-9]{{2}}:{a}"}),
        ("number:{answer}", {"number": "{answer}"}),
        ("words:1-8", {"words": [1, 8]}),
        ("words:3", {"words": [3, 3]}),
        ("characters:0-80", {"characters": [0, 80]}),
        (json.dumps(CHECK), CHECK),
    ],
)
def test_reward__short_forms_and_json__are_checks(text: str, check: object) -> None:
    assert document_of(text) == {"check": check, "samples": 4, "tokens": 16}
    assert document_of(text, 8, 32) == {"check": check, "samples": 8, "tokens": 32}


@pytest.mark.parametrize("is_whole", [False, True])
def test_reward__in_a_file__is_taken_and_options_count_more(tmp_path: Path, is_whole: bool) -> None:
    path = tmp_path / "rule.json"
    path.write_text(json.dumps({"check": CHECK, "tokens": 5} if is_whole else CHECK, indent=2) + "\n")
    assert document_of(f"@{path}") == {"check": CHECK, "samples": 4, "tokens": 5 if is_whole else 16}
    assert document_of(f"@{path}", tokens=7) == {"check": CHECK, "samples": 4, "tokens": 7}


@pytest.mark.parametrize("said", ["exact:{answer}\r\n", '\ufeff{"exact": "{answer}"}', "words:3\n"])
def test_reward__in_a_file_as_editors_leave_it__is_taken(tmp_path: Path, said: str) -> None:
    (path := tmp_path / "rule.txt").write_text(said, "utf-8", newline="")
    assert document_of(f"@{path}")["check"] == ({"words": [3, 3]} if "words" in said else {"exact": "{answer}"})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("--reward '': is no rule", "exact:{answer}", "@FILE")),
        ("right", ("--reward 'right': is no rule", "exact:{answer}")),
        ("equals:{answer}", ("'equals:{answer}': is no rule", "exact:{answer}")),
        ("words:few", ("--reward words:few: give the least and the most, such as words:1-8",)),
        ("characters:1-99999999999999", ("reward.check.characters[1]: a whole number of 0 ... 16,384 is expected",)),
        ("exact: ", ("--reward exact: has nothing after the colon", "exact:{answer}")),
        ("rule.json", ("--reward 'rule.json': is no rule, and a file of one is @rule.json. Give",)),
        ("words:8-1", ("--reward: reward.check.words: nothing lies in 8 ... 1",)),
        ("exact:{answer", ("reward.check.exact: a single brace at character 1", "written twice")),
        ("regex:a{2,3}", ("reward.check.regex: {2,3} is not a field", "a{{2,3}}")),
        ("regex:(", ("the check's pattern '('", "missing )", "RE2 syntax")),
        ("number:many", ("reward.check.number: 'many' is neither a decimal number nor a text with a field",)),
        ('{"exact": "a",}', ("--reward: not JSON: ", ": line 1 column 1")),
        ('{"check": 1}', ("reward.check: an object is expected",)),
        ('{"check": {"exact": "a"}, "sample": 8}', ("'sample' is unknown; known are check, samples, tokens",)),
        (
            '{"exact": "a", "tokens": 20}',
            ("'tokens' is unknown", 'A whole rule is {"check": ..., "samples": 4, "tokens"'),
        ),
        ('{"upper": true}', ("'upper' is unknown; known are exact,", "has checks and --private-reward")),
        ("@/nowhere/rule.json", ("/nowhere/rule.json", "the rule of rewards")),
        ("exact:" + "a" * 4_096, ("characters are more than 4,096",)),
    ],
)
def test_reward__no_rule__teaches(text: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(OperatorError) as refusal:
        document_of(text)
    assert [part for part in parts if part not in str(refusal.value)] == []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('{"check": {"exact": "{answer}"}, "token": 20}', "'token' is unknown"),
        ('{"check": {"exact": "{answer}"}, "tokens": 20', "line 1 column 46"),
    ],
)
def test_reward__slip_within_a_rule__is_not_followed_by_all_other_forms(rule: str, said: str) -> None:
    """A fault once: what was wrong stood before 400 characters on how else to write a rule."""
    with pytest.raises(OperatorError) as refusal:
        document_of(rule)
    assert said in str(refusal.value) and "words:1-8" not in str(refusal.value)


@pytest.mark.parametrize(("samples", "rows"), [(8, 16), (12, 12), (64, 64), (3, 15)])
def test_batch_rows__not_given__are_about_16_answers(samples: int, rows: int) -> None:
    assert RewardOptions(rule_text="exact:a", samples=samples).batch_rows(None) == rows


def run_options(task: TaskOptions, batch_rows: int | None = None, **reward: object) -> RunOptions:
    return RunOptions(
        model="embedded:tiny-opt",
        task=task,
        reward=RewardOptions(**reward),  # type: ignore[arg-type]
        batch_rows=batch_rows,
        method=MethodOptions(),
        data=DataOptions(is_private=True),
    )


def test_task__with_a_rule__is_of_rewards() -> None:
    folder = resolve_model("embedded:tiny-opt")
    task = task_of(run_options(TaskOptions(), 16, rule_text="exact:{answer}"), folder)
    assert (task.kind, task.objective, task.template) == (TaskKind.REWARD, Objective.LOSS, "{prompt}")
    assert (task.label_words, task.batch_rows) == ((), 16)
    assert parse_reward(task.completion).fields == ("answer",)
    other = task_of(run_options(TaskOptions(template="{a}:"), rule_text="exact:x"), folder)
    assert (other.template, other.batch_rows) == ("{a}:", 16)


def test_task__without_a_rule__has_as_many_rows_as_before() -> None:
    folder = resolve_model("embedded:tiny-opt")
    task = task_of(run_options(TaskOptions(task="sst2")), folder)
    assert (task.kind, task.batch_rows) == (TaskKind.CLASSIFICATION, 16)


INIT = ("init", "--model", "embedded:tiny-opt", "--private-data")
RULE = ("--reward", "exact:{answer}")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((*RULE, "--labels", " no, yes"), ("--labels", "leave --labels out", "--template")),
        ((*RULE, "--completion", " {a}"), ("--completion", "leave --completion out", "--template")),
        ((*RULE, "--task", "sst2"), ("--task", "leave --task out", "--template")),
        ((*RULE, "--objective", "f1"), ("--objective f1", "leave it out")),
        ((*RULE, "--batch-rows", "18"), ("--batch-rows 18", "4 to each prompt", "such as 16", "--samples")),
        ((*RULE, "--batch-rows", "2"), ("--batch-rows 2", "such as 4")),
        ((*RULE, "--chat"), ("--chat", "has no chat template", "Leave --chat out")),
        (("--task", "sst2", "--samples", "4"), ("--samples", "--reward", "exact:{answer}")),
        (("--task", "sst2", "--answer-tokens", "4"), ("--answer-tokens", "--reward")),
        (("--task", "sst2", "--no-chat"), ("--chat", "--reward")),
        (("--reward", "better"), ("--reward 'better'", "is no rule", "exact:{answer}")),
    ],
)
def test_init__options_that_do_not_fit_rewards__teach(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "a.run"
    assert_teaches(call(*INIT, *arguments, "--out", out), *parts)
    assert not out.exists()


@pytest.mark.parametrize("rule", ["number:{answer}", '{"number": [0, "{answer}"]}'])
def test_init__row_that_puts_no_number_into_a_rule_of_numbers__is_named(rule: str, tmp_path: Path) -> None:
    """No answer to it is ever rewarded, and the run was signed without a word."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "Is it?", "answer": "yes"}\n', "utf-8")
    outcome = call(*INIT, "--data", data, "--reward", rule, "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"{data}:2: answer is 'yes', and no number, which the rule asks for", "leave it out")


def test_init__row_with_nothing_to_contain__is_named(tmp_path: Path) -> None:
    """By SPEC 1.6 no answer contains an empty text: the row taught nothing, and nobody was told which it was."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "Is it?", "answer": "yes"}\n{"prompt": "And now?", "answer": ""}\n', "utf-8")
    outcome = call(*INIT, "--data", data, "--reward", "contains:{answer}", "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"{data}:2: answer is '', and no text, which the rule asks for", "leave it out")


@pytest.mark.parametrize(
    ("rule", "row", "said"),
    [
        ('{"number": ["{low}", "{high}"]}', {"low": 9, "high": 3}, "nothing lies in 9 ... 3, which the rule asks for"),
        ('{"number": ["{low}", 5]}', {"low": 1000001, "high": 3}, "nothing lies in 1000001 ... 5, which the rule"),
        ("exact:{low}", {"low": "a" * 16_385, "high": 3}, "of 16,385 bytes in all, and only 16,384 of an answer are"),
        ("contains:{low}{high}", {"low": "\u00e4" * 8_192, "high": 3}, "of 16,385 bytes in all, and only 16,384 of an"),
        ('{"sum": [[2, {"contains": "{low}"}]]}', {"low": "", "high": 3}, "low is '', and no text, which the rule"),
        ('{"sum": [[1, {"sum": [[2, {"number": "{low}"}]]}]]}', {"low": "x", "high": 3}, "low is 'x', and no number"),
    ],
)
def test_init__row_that_no_answer_satisfies__is_named(
    rule: str, row: dict[str, object], said: str, tmp_path: Path
) -> None:
    """Rarer ways to the same: such rows taught nothing, and lowered the share of right answers for ever."""
    data = tmp_path / "rows.jsonl"
    good = {"prompt": "Is it?", "low": 1, "high": 3}
    data.write_text(json.dumps(good) + "\n" + json.dumps({"prompt": "And now?", **row}) + "\n", "utf-8")
    outcome = call(*INIT, "--data", data, "--reward", rule, "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"{data}:2: ", said, "no answer is ever right. Correct the row, or leave it out")


def test_reward_texts__without_a_template__ask_the_prompt_of_the_row() -> None:
    texts = reward_texts(TaskOptions(), RewardOptions(rule_text="words:1-3"))
    assert (texts.kind, texts.template, texts.label_words) == (TaskKind.REWARD, "{prompt}", ())


@pytest.mark.parametrize(
    ("template", "rows", "is_spaced"),
    [
        ("{prompt}", [("Which topic? Topic:", "world"), ("Topic:", "sports")], True),
        ("{prompt} ", [("Topic:", "world")], True),  # the prompt's own space goes before the word
        ("{prompt}", [("Topic:\n", "world")], False),
        ("{prompt}", [("Topic: ", "world")], False),  # it is the rows' own
        ("{prompt}\n", [("Topic:", "world")], False),
        ("<|user|>{prompt}<|assistant|>", [("Topic:", "world")], False),  # a chat's
        ("USER: {prompt} ASSISTANT:", [("Topic?\n", "world")], True),
        ("{prompt}", [("Price:", "5"), ("Price:", "$7"), ("Price:", "6")], True),  # most
        ("{prompt}", [("Code:", '{"a": 1}'), ("Code:", "")], False),
        ("{prompt}", [("\u7b54\u6848:", "\u4e16\u754c")], False),  # Chinese has no spaces
        ("{prompt}", [("Topic:", " world")], False),
    ],
)
def test_spaced__right_answers_after_prompts__have_the_space_where_words_do(
    template: str, rows: list[tuple[str, str]], is_spaced: bool
) -> None:
    """Without a chat template "Topic:world" was learnt, which a model never reads: 11.29 nats, not 5.65."""
    texts = reward_texts(TaskOptions(template=template), RewardOptions(rule_text="exact:{word}", answer="{word}"))
    filled = [texts.row_template.texts({"prompt": prompt, "word": word}, "") for prompt, word in rows]
    found = texts.spaced(filled)
    assert json.loads(found.completion)["answer"] == (" {word}" if is_spaced else "{word}")
    assert found.template == (template.rstrip(" ") if is_spaced else template)
    assert found.spaced(filled) == found, "once is enough"
    drawn = replace(texts, completion=RewardOptions(rule_text="exact:{word}").document)
    assert drawn.spaced(filled) == drawn
