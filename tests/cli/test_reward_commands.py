"""Commands on a run that learns from rewards: what they print of answers, and what they refuse."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run import parse_reward
from protocol.run.manifest import SignedManifest, decode_run_untrusted
from sfnode.cli import new_run
from sfnode.node.join_preparation import _noise_config
from sfnode.quality_figures import AnswerSpread
from sfnode.rewards import Checker
from sfnode.rows import row_slips
from sfnode.run import DataOptions, RewardOptions, RunOptions, TaskOptions
from sfnode.run.manifest_builder import MethodOptions
from sfnode.run.node_options import TrainingOptions
from sfnode.storage import example_files
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.evaluations import BEST_STEP, EvaluatedStep
from sfnode.storage.record_store import Store
from sfnode.training.calibration import FoundBasis
from sfnode.worker.audit_case import check_auditable
from tests.support.cli_calls import assert_teaches, call
from tests.support.reward_runs import RULE, reward_manifest, reward_run, rewarded, write_prompts

STEPS = 3
NAMED_RULE = {**RULE, "answer": "{wanted}"}
EMBEDDED = ("--model", "embedded:tiny-opt")
ALICE = Signer(b"alice".ljust(32, b"."))


def found_with(drawn: tuple[tuple[str, float, bool], ...], *, is_cut_form: bool = False) -> FoundBasis:
    return cast(FoundBasis, SimpleNamespace(drawn=drawn, is_cut_form=is_cut_form))


@pytest.fixture
def node(tmp_path: Path) -> DataDirectory:
    """The directory of a node that has stopped after a few steps."""
    signed, basis = reward_run(tmp_path)
    return held_in(tmp_path / "node", signed, basis)


def held_in(folder: Path, signed: SignedManifest, basis: Path) -> DataDirectory:
    codec, node = EnvelopeCodec(signed.manifest), DataDirectory(folder)
    store = Store(node, signed)
    numbers = (8, *((9, -9) * signed.manifest.numbers)[: signed.manifest.numbers - 1])
    store.add([codec.seal(ALICE, step, numbers).record for step in range(STEPS)], is_durable=True)
    store.close()
    node.basis.path.write_bytes(basis.read_bytes())
    return node


def test_eval__rewards__prints_means_and_answers_before_and_after(node: DataDirectory, tmp_path: Path) -> None:
    held_out = write_prompts(tmp_path / "held-out.jsonl")
    shown = call("eval", "--data-dir", node, "--eval-data", held_out, "--compare")
    assert shown.code == 0, shown
    lines = shown.stdout.splitlines()
    names = ["the model alone", "the run now"]
    assert [line.strip()[:15].rstrip() for line in lines[:2]] == names
    assert [line.split(":")[0].strip()[:15].rstrip() for line in lines[2:]] == ["prompt", *names] * 3
    assert "% fully right, mean reward 0." in lines[0] and ", 8 rows; " in lines[0] and "different answer" in lines[0]
    assert lines[2] == "prompt: a good film 0 It was" and "great" in lines[3]
    told: dict[str, Any] = json.loads(call("eval", "--data-dir", node, "--eval-data", held_out, "--json").stdout)
    after = told["after"]
    assert after["reward"] == 1 - after["loss"] and len(after["answers"]) == 3
    assert 1 <= after["spread"]["distinct"] <= 8 and 1 / 8 <= after["spread"]["share"] <= 1
    gain = node.gain.read()
    assert gain is not None and gain.after.reward == after["reward"]
    assert [each.text for each in gain.after.answers] == [each["text"] for each in after["answers"]]
    last = call("run", "show", node.path).stdout.splitlines()[-1]
    assert last.startswith("gain     the model alone mean") and f"the run now mean reward {after['reward']:.2f}" in last


def test_eval__at_the_best_step__is_the_one_of_most_reward(node: DataDirectory, tmp_path: Path) -> None:
    found = [EvaluatedStep(step=at, accuracy=0.5, loss=1.0 - at % 3, rows=9, reward=float(at % 3)) for at in range(3)]
    node.evaluations.write(found)
    held_out = write_prompts(tmp_path / "held-out.jsonl")
    best, second = (
        json.loads(call("eval", "--data-dir", node, "--eval-data", held_out, "--at-step", at, "--json").stdout)
        for at in (BEST_STEP, 2)
    )
    assert best == second
    assert call("export", "--data-dir", node, "--at-step", BEST_STEP, "--out", tmp_path / "out").code == 0


def test_eval__node_with_a_program_of_its_own__checks_as_the_node_does(node: DataDirectory, tmp_path: Path) -> None:
    """The figures of `eval` stand beside those that the node has measured."""
    program = tmp_path / "check.py"
    program.write_text("import sys\nfor line in sys.stdin:\n    print(0.25, flush=True)\n")
    command = f"{sys.executable} {program}"
    (node.path / "node.toml").write_text(f"private-reward = {json.dumps(command)}\n")
    shown = call("eval", "--data-dir", node, "--eval-data", write_prompts(tmp_path / "held-out.jsonl"))
    assert "mean reward 0.25" in shown.stdout and "Note: answers are checked as this node does" in shown.stderr
    told = call("eval", "--data-dir", node, "--eval-data", tmp_path / "held-out.jsonl", "--json")
    assert json.loads(told.stdout)["after"]["reward"] == 0.25 and "Note" not in told.stderr
    ruled = call("eval", "--data-dir", node, "--eval-data", tmp_path / "held-out.jsonl", "--no-private-reward")
    assert "mean reward" in ruled.stdout and "mean reward 0.25" not in ruled.stdout and "Note" not in ruled.stderr


def test_export__of_a_model_that_was_better_before__warns(node: DataDirectory, tmp_path: Path) -> None:
    spread = AnswerSpread(distinct=1, commonest="yes", share=1.0)
    node.evaluations.write(
        [
            EvaluatedStep(step=at, accuracy=0.5, loss=loss, rows=99, reward=1 - loss, spread=spread)
            for at, loss in enumerate((0.9, 0.2, 0.5))
        ]
    )
    exported = call("export", "--data-dir", node, "--out", tmp_path / "out")
    assert exported.code == 0 and "Warning: the mean reward on held-out data was better before" in exported.stderr
    again = call("export", "--data-dir", node, "--out", tmp_path / "out", "--force", "--at-step", BEST_STEP)
    assert again.code == 0 and "Warning" not in again.stderr


def test_ask__rewards__prints_what_each_answer_gets(node: DataDirectory) -> None:
    question = '{"sentence": "a good film", "wanted": "great"}'
    before = call("ask", "--data-dir", node, question).stdout.splitlines()[1]
    assert before.startswith("  the model alone  great") and before.endswith("  (reward 1.00)")


def test_audit__rewards__is_refused_with_what_else_there_is(node: DataDirectory) -> None:
    assert_teaches(call("audit", "--data-dir", node), "no message can be measured again", "`sfnode run show`")
    manifest, _ = reward_manifest()
    public = replace(manifest.task, data="file:a.jsonl", data_sha256="a" * 64)
    with pytest.raises(OperatorError, match="learns from rewards"):
        check_auditable(replace(manifest, task=public))
    check_auditable(replace(manifest, task=rewarded(public, NAMED_RULE, data=public.data)))  # nothing is drawn


def test_join__noise_in_a_run_of_rewards__is_refused() -> None:
    manifest, _ = reward_manifest()
    with pytest.raises(OperatorError, match=r"--noise hides single rows, .* Leave it out"):
        _noise_config(manifest, TrainingOptions(noise="1"))
    assert _noise_config(manifest, TrainingOptions()) is None
    named = replace(manifest, task=rewarded(manifest.task, NAMED_RULE))
    assert _noise_config(named, TrainingOptions(noise="1")) is not None  # each row is measured by itself


def test_init__objective_beside_a_reward__is_refused_before_anything_is_read(tmp_path: Path) -> None:
    asked = (
        "--reward",
        "words:1-4",
        "--objective",
        "f1",
        "--data",
        tmp_path / "none.jsonl",
        "--out",
        tmp_path / "a.run",
    )
    assert_teaches(
        call("init", *EMBEDDED, *asked), "--objective f1: a run with --reward raises its reward: leave it out"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"is_plain": True}, "--plain: slopes along drawn directions cannot"),
        ({"method": MethodOptions(directions=4)}, "leave out --settings and the options on directions"),
        ({"data": DataOptions()}, "--data is missing: .* Give a file of them"),
        ({"steps": 0}, "--steps 0: value 0 is outside"),  # before the minutes that a basis takes
        ({}, "rewards are learnt by a dense core: too few examples to make a basis from: 8, where 32 are needed"),
    ],
)
def test_init__rewards_without_a_dense_core__says_what_to_leave_out_or_give(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, _ = reward_manifest()
    monkeypatch.setattr(new_run, "task_of", lambda *_given, **_named: rewarded(manifest.task))
    monkeypatch.setattr(new_run, "_with_readable_data", lambda options, _out: (options, []))
    data = DataOptions(data=str(write_prompts(tmp_path / "prompts.jsonl")), is_private=True)
    options = RunOptions(model="embedded:tiny-opt", task=TaskOptions(), method=MethodOptions(), data=data)
    with pytest.raises(OperatorError, match=said):
        new_run.make_run(
            replace(options, **changes), tmp_path / "a.key", default_name="a", basis_out=tmp_path / "a.basis"
        )
    assert not (tmp_path / "a.basis").exists()


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"regex": "(?s).*"}, "got 1.00, and equal rewards teach nothing: let the rule ask for more"),
        (
            {"sum": [[1, {"words": [0, 9]}], [1, {"exact": "no"}]]},
            "got 0.50, and equal rewards teach nothing",
        ),
        ({"sum": [[1, {"words": [0, 9]}], [1, {"contains": "great"}]]}, ""),
    ],
)
def test_say_start__rewards_of_what_the_model_draws__warns_where_all_are_equal(
    capsys: pytest.CaptureFixture[str], check: dict[str, object], said: str
) -> None:
    """Before the run is made, by `init` and by `testnet`: a run with such a rule has nothing to learn from."""
    checker = Checker(parse_reward(json.dumps({"check": check, "samples": 4, "tokens": 4})))
    texts = ("great", "bad", "a great\nfilm")
    drawn = tuple((text, checker.reward(text, True, {}), True) for text in texts)
    new_run._say_start(found_with(drawn), rewarded(reward_manifest()[0].task))
    shown = capsys.readouterr().err
    assert (
        shown.startswith("the model alone draws 3 answers: mean reward ")
        and "3 have ended; 'a great\\nfilm' gets" in shown
    )
    assert ("Warning: " in shown) is bool(said)
    assert said in shown


def test_say_start__a_mean_that_rounds_to_zero__says_how_many_answers_got_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of 128 answers two had a part of the reward, and "mean reward 0.00, 0 fully right" looked like none at all."""
    drawn = tuple((str(number), 0.2 * (number < 2), True) for number in range(128))
    new_run._say_start(found_with(drawn), rewarded(reward_manifest()[0].task))
    assert "128 answers: mean reward 0.00, 2 get something, 0 fully right, 128 have ended; " in capsys.readouterr().err


@pytest.mark.parametrize(("ended", "is_said"), [(1, True), (2, False), (4, False)])
def test_say_start__most_answers_go_on__says_what_that_costs_them(
    capsys: pytest.CaptureFixture[str], ended: int, is_said: bool
) -> None:
    """Of 256 answers 60 had ended, and nothing said that the rule had looked at no more than those."""
    drawn = tuple((str(number), number / 8, number < ended) for number in range(4))
    new_run._say_start(found_with(drawn), rewarded(reward_manifest()[0].task))
    said = ", and the others pass no check but `contains`; '3' gets"
    assert (said in capsys.readouterr().err) is is_said


@pytest.mark.parametrize("is_form", [True, False])
def test_say_start__best_answers_are_forms_of_a_rule_for_few_tokens__names_the_option(
    capsys: pytest.CaptureFixture[str], is_form: bool
) -> None:
    """Dates learnt to 12 % with the default of 16 tokens, to 31 % with 20, and nobody said so."""
    drawn = (("1 May", 0.0, True), ("2020-05-01", 1.0, True))
    new_run._say_start(found_with(drawn, is_cut_form=is_form), rewarded(reward_manifest()[0].task))
    assert ("learnt sooner with --answer-tokens 20" in capsys.readouterr().err) is is_form


def test_say_start__no_answer_of_a_rule_that_takes_unended_ones__has_other_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = replace(reward_manifest()[0].task, completion=RewardOptions(rule_text="contains:{answer}").document)
    drawn = (("a", 0.0, False), ("b", 0.0, False))
    new_run._say_start(found_with(drawn), task)
    assert "got 0.00, and equal rewards teach nothing: look whether the rule rewards" in capsys.readouterr().err


def test_init__prompts_that_are_cut__says_how_many_and_what_to_give(tmp_path: Path) -> None:
    """A prompt that loses its beginning loses the start of its chat."""
    rows = [{"prompt": "a film " * (1 + 5 * (row % 2))} for row in range(40)]
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    given = ("--reward", "words:1-6", "--samples", 4, "--answer-tokens", 6, "--batch-rows", 16, "--private-data")
    made = call("init", *EMBEDDED, *given, "--data", data, "--max-tokens", 16, "--out", tmp_path / "a.run")
    assert made.code == 0, made
    assert "Warning: 20 of 40 prompts are cut to 10 tokens and lose their beginning" in made.stderr
    assert "has 1 to 6 words, else 0; 4 answers of at most 6 tokens to each prompt" in made.stdout
    assert (
        "the model alone draws 40 answers: mean reward 0.00, 0 get something, 0 fully right, 0 have ended, and"
        in made.stderr
    )
    assert "Warning: each answer got 0.00, and equal rewards teach nothing: none has ended, and such" in made.stderr
    assert "passes no check but `contains`: give more --answer-tokens" in made.stderr
    again = call("init", *EMBEDDED, *given, "--data", data, "--out", tmp_path / "b.run", "--json")
    assert again.code == 0 and "prompts are cut" not in again.stderr
    drawn = json.loads(again.stdout)["drawn_answers"]
    assert [(each["reward"], each["has_ended"]) for each in drawn] == [(0.0, False)] * 40


@pytest.mark.parametrize(
    ("given", "answer", "said"),
    [
        ((), "{wanted}", "Note: each row names a right answer, {wanted}: nodes learn it"),
        (("--answer", ""), None, "the model alone draws 40 answers"),
        (("--answer", "it is {wanted}"), "it is {wanted}", "40 right answers have more tokens than an answer may have"),
        (
            ("--answer", "it is {wanted}"),
            "it is {wanted}",
            "jsonl:1 has 'it is great', which gets 0.00, and the rule gives 1 if the answer is 'great', else 0.",
        ),
    ],
)
def test_init__rows_that_name_a_right_answer__learns_it_unless_told_otherwise(
    tmp_path: Path, given: tuple[str, ...], answer: str | None, said: str
) -> None:
    """Where a right answer was never drawn, a run learnt nothing, though each row held it."""
    data = write_prompts(tmp_path / "prompts.jsonl", 40)
    reward = ("--reward", "exact:{wanted}", "--answer-tokens", 2, "--template", "{sentence} is", "--private-data")
    out = tmp_path / "a.run"
    made = call("init", *EMBEDDED, *reward, *given, "--batch-rows", 16, "--data", data, "--out", out)
    assert made.code == 0 and said in made.stderr, made
    assert ("does not call right" in made.stderr) is ("it is {wanted}" in given)
    rule = parse_reward(decode_run_untrusted(out.read_bytes()).manifest.task.completion)
    spaced = f" {answer}" if answer else answer
    assert rule == RewardOptions(rule_text="exact:{wanted}", answer_tokens=2, answer=spaced).rule
    assert (f"Note: taken as --answer {spaced!r} after '{{sentence}} is': with the space" in made.stderr) is bool(
        answer
    )
    assert ("names a right answer" in made.stderr) is (given == ())
    assert made.stderr.count("the model alone answers '") == (0 if answer is None else 3)
    if given == ():
        assert "gets 0.00, where 'great' is right: a good film 0 is\n" in made.stderr
    assert ("and give --labels 'great,terrible' in place of --reward" in made.stderr) is (given == ())


def test_init__answer_with_a_line_break_and_a_number_of_drawn_ones__is_taken_and_refused(tmp_path: Path) -> None:
    """A backslash and an n were learnt, though a template's are a line break; and --samples was left aside silently."""
    data, out = write_prompts(tmp_path / "prompts.jsonl", 40), tmp_path / "a.run"
    given = (*EMBEDDED, "--private-data", "--data", data, "--template", "{sentence} is", "--reward", "exact:{wanted}")
    made = call("init", *given, "--answer", r"\n{wanted}\\n", "--out", out)
    assert made.code == 0 and "taken as --answer" not in made.stderr, made
    rule = json.loads(decode_run_untrusted(out.read_bytes()).manifest.task.completion)
    assert rule["answer"] == "\n{wanted}\\n"  # no space before a line break
    refused = call("init", *given, "--answer", "{wanted}", "--samples", "8", "--out", tmp_path / "b.run")
    assert_teaches(
        refused, "--samples 8: no answer is drawn where rows name the right one: leave it out", "--answer ''"
    )
    noted = call("init", *given, "--samples", "8", "--out", tmp_path / "c.run")
    assert noted.code == 0 and "answers that the model draws, and only then --samples 8 counts" in noted.stderr


def test_init__rows_that_name_no_text__are_counted(tmp_path: Path) -> None:
    """A column that is not complete taught nodes to write nothing, and nobody said so."""
    data = tmp_path / "prompts.csv"
    data.write_text("prompt,wanted\n" + "a film,great\na play,\n" * 20, "utf-8")
    given = (*EMBEDDED, "--private-data", "--data", data, "--out", tmp_path / "a.run", "--reward", "exact:{wanted}")
    made = call("init", *given)
    assert made.code == 0 and "20 of 40 rows name an empty right answer, and nodes learn to write no" in made.stderr


def test_init__rows_that_name_a_right_answer__takes_messages_of_two_rows(tmp_path: Path) -> None:
    """Rows were counted as answers, four to each prompt, before it was known that none is drawn."""
    data, out = write_prompts(tmp_path / "prompts.jsonl", 40), tmp_path / "a.run"
    given = (*EMBEDDED, "--private-data", "--data", data, "--out", out, "--template", "{sentence} is")
    made = call("init", *given, "--reward", "exact:{wanted}", "--batch-rows", 2)
    assert made.code == 0, made
    assert decode_run_untrusted(out.read_bytes()).manifest.task.batch_rows == 2
    out.with_stem("b").with_suffix(".basis").touch()  # it was "--batch-rows 2: counts answers, 4 to each prompt"
    given = (*EMBEDDED, "--private-data", "--data", data, "--out", out.with_stem("b"), "--reward", "exact:{wanted}")
    assert_teaches(call("init", *given, "--batch-rows", 2), "b.basis exists", "choose another --out")


@pytest.mark.parametrize(
    ("rule", "wanted", "labels"),
    [
        (
            "exact:{wanted}",
            ("yes", "no"),
            """call the field `label`, and give --template '{prompt}' --labels 'no,yes'""",
        ),
        ("exact:{wanted}", ("yes, I think", "no"), ""),  # a comma would divide it
        ("exact:{wanted}", ("it was a very long evening " * 8, "no"), ""),
        ("exact:<{wanted}>", ("yes", "no"), ""),  # the field holds no such word
    ],
)
def test_with_right_answer__few_texts__points_to_labels_that_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str, wanted: tuple[str, str], labels: str
) -> None:
    """The options that it named made no run: a run of labels has no usual template."""
    data = tmp_path / "prompts.jsonl"
    data.write_text(
        "".join(json.dumps({"prompt": "a film", "wanted": each.strip()}) + "\n" for each in wanted), "utf-8"
    )
    named = DataOptions(data=str(data), is_private=True)
    reward = RewardOptions(rule_text=rule)
    options = RunOptions(model="m", task=TaskOptions(), data=named, reward=reward, method=MethodOptions())
    new_run._with_right_answer(options, row_slips.looked_at(data, options.texts.row_template)[0])
    said = capsys.readouterr().err
    assert "each row names a right answer" in said
    assert labels in said and ("--labels" in said) is bool(labels)


def test_warn_of_examples__model_whose_texts_have_no_end__says_that_no_answer_is_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such a model learnt right answers, and each that it wrote then got nothing."""
    task = reward_manifest()[0].task
    for stops in ((), (7,)):
        judge = SimpleNamespace(stops=frozenset(stops), rule=parse_reward(task.completion))
        new_run._warn_of_examples(task, cast(Any, SimpleNamespace(judge=judge, examples=(), label_tokens=())), None)
        said = capsys.readouterr().err
        assert ("no token that ends a text, so its answers pass no check but `contains`" in said) is (stops == ())


def test_training_file__none_given_to_a_run_of_rewards__shows_a_row() -> None:
    """The error had the prompt and the rule in one text: "fields as in '{prompt}{"check":..."."""
    with pytest.raises(OperatorError, match=re.escape('(a row: {"sentence": "...", "wanted": "..."})')):
        example_files.training_file(reward_manifest()[0].task, None)
