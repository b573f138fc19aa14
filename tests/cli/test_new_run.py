"""What `sfnode init` makes of an owner's options and data, and what it says of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import MambaConfig, MambaForCausalLM

from protocol.run.method import CoreKind
from sfnode import demo
from sfnode.demo import data_file
from sfnode.run import manifest_builder
from sfnode.storage import decode_run_file, stored_basis
from sfnode.training import calibration
from sfnode.training.model import loading
from sfnode.training.task import PromptEncoder
from tests.support.cli_calls import assert_teaches, call

DEMO = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews")


def some_reviews(folder: Path, count: int) -> Path:
    lines = data_file(split="train").read_text("utf-8").splitlines()[:count]
    (file := folder / "some.jsonl").write_text("\n".join(lines), "utf-8")
    return file


def test_init__run_with_data__names_the_basis_that_it_writes_and_says_what_it_took(tmp_path: Path) -> None:
    outcome = call("init", *DEMO, "--out", tmp_path / "a.run", "--owner-key", tmp_path / "owner.key")
    assert outcome.code == 0, outcome
    assert f"join --run {tmp_path / 'a.run'} --basis {tmp_path / 'a.basis'}" in outcome.stdout
    manifest = decode_run_file(tmp_path / "a.run").manifest
    assert manifest.method.basis_sha256 == hashlib.sha256((tmp_path / "a.basis").read_bytes()).hexdigest()
    assert stored_basis.read_bases(manifest, tmp_path / "a.basis").manifest == manifest
    numbers = f"{manifest.numbers - 1:,} numbers of {manifest.method.number_bits} bits"
    took = "from one forward pass a row; the basis took 1,088 forward and 64 backward rows"
    assert f"method   the gradient by {numbers} {took}" in outcome.stdout
    again = call("init", *DEMO, "--out", tmp_path / "b.run", "--owner-key", tmp_path / "owner.key", "--json")
    told = json.loads(again.stdout)
    assert (told["basis"], told["calibration_rows"]) == (str(tmp_path / "b.basis"), 1_088)
    assert told["owner_key"] == str(tmp_path / "owner.key")  # for a backup: nobody else can invite, or exclude
    assert Path(told["invitation_file"]).read_text().strip() == told["invitation"]
    assert (tmp_path / "b.basis").read_bytes() == (tmp_path / "a.basis").read_bytes()  # same choices, same bytes


def test_init__bits__say_how_long_a_message_is(tmp_path: Path) -> None:
    given = ("init", *DEMO, "--data", some_reviews(tmp_path, 40))
    for bits, clip in (("2", 1), ("4", 7), ("8", 127)):
        outcome = call(*given, "--bits", bits, "--out", tmp_path / f"{bits}.run")
        manifest = decode_run_file(tmp_path / f"{bits}.run").manifest
        size = 110 + (manifest.numbers - 1) * int(bits) // 8
        assert manifest.method.clip == clip
        assert f"update   {size:,} bytes per step and node" in outcome.stdout
        assert f"Message          {size:,} bytes: " in call("run", "show", tmp_path / f"{bits}.run").stdout
    call(*given, "--out", tmp_path / "a.run")
    assert decode_run_file(tmp_path / "a.run").manifest.method.clip == (1 << manifest_builder.BITS - 1) - 1


def test_init__bits_of_a_run_that_draws_directions__says_what_they_need(tmp_path: Path) -> None:
    refused = call("init", *DEMO, "--bits", 4, "--plain", "--out", tmp_path / "a.run")
    assert_teaches(refused, "--bits 4: needs", "no option on how directions are drawn")


def test_init__labels_of_the_data_are_others__same_basis(tmp_path: Path) -> None:
    """Owners may make a basis from examples whose labels nobody knows, or that must not leave their machine."""
    plain = some_reviews(tmp_path, 40).read_text("utf-8").splitlines()
    turned = [json.dumps({**row, "label": 1 - row["label"]}) for row in map(json.loads, plain)]
    (tmp_path / "turned.jsonl").write_text("\n".join(turned), "utf-8")
    for name in ("some", "turned"):
        data = tmp_path / f"{name}.jsonl"
        assert call("init", *DEMO, "--data", data, "--out", tmp_path / f"{name}.run").code == 0
    assert (tmp_path / "some.basis").read_bytes() == (tmp_path / "turned.basis").read_bytes()


@pytest.mark.parametrize(
    "options", [("--plain",), ("--directions", 4), ("--sides", 1), ("--rank", 16), ("--core", "canonical")]
)
def test_init__plain_or_an_option_on_directions__draws_them_and_makes_no_basis(
    options: tuple[object, ...], tmp_path: Path
) -> None:
    outcome = call("init", *DEMO, *options, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    method = decode_run_file(tmp_path / "a.run").manifest.method
    assert (method.core, method.basis_sha256) == (CoreKind.CANONICAL, "")
    assert f"method   slopes along {method.directions} random directions a step" in outcome.stdout
    assert not (tmp_path / "a.basis").exists() and "--basis" not in outcome.stdout


def test_init__dense_core_asked_for_with_an_option_on_directions__says_what_it_needs(tmp_path: Path) -> None:
    refused = call("init", *DEMO, "--core", "dense", "--sides", 1, "--out", tmp_path / "a.run")
    assert_teaches(refused, "--core dense", "no option on how directions are drawn")


def test_init__staleness__is_what_the_manifest_says(tmp_path: Path) -> None:
    given = ("init", *DEMO, "--data", some_reviews(tmp_path, 4), "--plain")
    for name, options, expected in (("a", (), 1), ("b", ("--staleness", 0), 0), ("c", ("--staleness", 64), 64)):
        assert call(*given, *options, "--out", tmp_path / f"{name}.run").code == 0
        assert decode_run_file(tmp_path / f"{name}.run").manifest.staleness == expected
    refused = call(*given, "--staleness", 65, "--out", tmp_path / "d.run")
    assert "staleness" in refused.error


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_init__with_and_without_a_basis__reads_model_and_data_once(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describing the model, trying the task, and looking at examples use the same model and the same tokens."""
    loads, rows = counted(monkeypatch, loading, "_unread"), counted(monkeypatch, PromptEncoder, "encode")
    outcome = call("init", *DEMO, "--data", some_reviews(tmp_path, 40), *options, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert (len(loads), len(rows)) == (1, 40)


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[None]:
    """Grows by one with each call of that function."""
    calls: list[None] = []
    real: Callable[..., object] = getattr(owner, name)

    def noted(*arguments: object) -> object:
        calls.append(None)
        return real(*arguments)

    monkeypatch.setattr(owner, name, noted)
    return calls


@pytest.mark.parametrize(("rows", "is_dense"), [(31, False), (32, True)])
def test_init__few_examples__say_too_little_for_a_dense_core(rows: int, is_dense: bool, tmp_path: Path) -> None:
    data = some_reviews(tmp_path, rows)
    outcome = call("init", *DEMO, "--data", data, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert decode_run_file(tmp_path / "a.run").manifest.method.is_dense == is_dense
    assert is_dense != (f"Warning: too few examples to make a basis from: {rows}, where" in outcome.stderr)
    asked = call("init", *DEMO, "--data", data, "--core", "dense", "--out", tmp_path / "b.run")
    assert (asked.code == 0) == is_dense and is_dense != ("--core dense: too few" in asked.stderr)


def test_init__choices_that_are_equal__are_said_to_teach_nothing(tmp_path: Path) -> None:
    """It ended in a traceback: a number was divided by the curvature of the loss, which was 0."""
    (data := tmp_path / "rows.jsonl").write_text('{"q": "a film", "choices": ["good", "good"], "label": 0}\n' * 40)
    task = ("--template", "{q}", "--completion", " {choice}", "--data", data)
    assert_teaches(call("init", *DEMO[:2], *task, "--out", tmp_path / "a.run"), "they teach nothing", "different ones")


def test_init__adapter_beside_a_whole_model__is_said_to_be_left_out(tmp_path: Path) -> None:
    shutil.copytree(demo.model_folder(), model := tmp_path / "model")
    command = ("init", *DEMO, "--model", model, "--plain", "--out")
    assert "adapter" not in call(*command, tmp_path / "a.run").stderr
    (model / "adapter_config.json").write_text("{}")
    outcome = call(*command, tmp_path / "b.run")
    assert outcome.code == 0 and "belongs to an adapter beside the model, which the run leaves out" in outcome.stderr


def test_init__words_that_no_token_sets_apart__are_said_to_teach_less_before_a_basis_is_made(tmp_path: Path) -> None:
    """`sfnode testnet` never said it, and `init` only after the basis."""
    (data := tmp_path / "rows.jsonl").write_text('{"sentence": "a film", "label": 0}\n{"sentence": "a", "label": 1}\n')
    for name, words, is_said in (("a", " an exam, a report", False), ("b", " good Yes, good", True)):
        texts = ("--template", "{sentence} It was", "--labels", words, "--plain", "--data", data)
        said = "no one token sets the label words apart, so a run learns less from each row"
        assert (said in call("init", *DEMO[:2], *texts, "--out", tmp_path / f"{name}.run").stderr) == is_said


@pytest.mark.parametrize("option", ["--model", "--data"])
def test_init__name_in_another_encoding__is_to_be_renamed(option: str, tmp_path: Path) -> None:
    """A fault once: it said that half of a surrogate pair is not a character."""
    name = tmp_path / os.fsdecode(b"caf\xe9")
    if option == "--model":
        given: tuple[object, ...] = (option, shutil.copytree(demo.model_folder(), name), "--private-data")
    else:
        given = (*DEMO[:2], option, some_reviews(tmp_path, 2).rename(name))
    texts = ("--template", "{sentence} It was", "--labels", " no, yes", "--plain", "--out", tmp_path / "a.run")
    outcome = call("init", *given, *texts)
    assert outcome.code != 0 and "the name is not UTF-8, in which a manifest is written: rename it" in outcome.stderr


def test_init__long_texts__are_said_to_be_cut(tmp_path: Path) -> None:
    """A fault once: it advised twice the number, whatever the rows had; each token costs its part of a pass."""
    for times, tokens, advice in (
        (999, 32, "the model takes 64: shorten them, or"),  # was: give --max-tokens 64, which cuts them, too
        (999, 64, "the model takes 64: shorten them, or"),
        (17, 24, 40),
    ):
        rows = [{"sentence": "good " * (1 + times * at), "label": at} for at in (0, 1)]
        (data := tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = ("--plain", "--max-tokens", tokens, "--data", data, "--out", tmp_path / f"{times}-{tokens}.run")
        said = f"Warning: 1 of 2 prompts are cut to {tokens} tokens and lose their beginning: "
        more = f"give --max-tokens {advice}, or" if advice == 40 else advice
        assert f"{said}{more}" in call("init", *DEMO, *given).stderr


@pytest.mark.parametrize("long", ["sentence", "answer"])
def test_init__long_prompts_or_completions__are_said_to_be_cut(long: str, tmp_path: Path) -> None:
    """A fault once: responses lost their ends, and prompts before them their beginnings, without a word."""
    rows = [{"sentence": "good", "answer": "yes"} | {long: "good " * (1 + 99 * at)} for at in (0, 1)]
    (data := tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = ("--template", "{sentence} It was", "--completion", " {answer}", "--max-tokens", 32)
    outcome = call("init", *DEMO[:2], *task, "--plain", "--data", data, "--out", tmp_path / "a.run")
    said = "Warning: 1 of 2 rows are cut to 32 tokens and lose the beginning of the prompt or the end of the completion"
    assert f"{said}: the model takes 64: shorten them, or leave" in outcome.stderr


def test_init__layers_that_cannot_be_trained__takes_a_line_for_all_of_a_kind(tmp_path: Path) -> None:
    """Of a state-space model of 24 layers, 120 lines told owners to leave out what was left out."""
    config = MambaConfig(hidden_size=32, num_hidden_layers=3, vocab_size=768, state_size=4)
    MambaForCausalLM(config).save_pretrained(model := shutil.copytree(demo.model_folder(), tmp_path / "model"))
    texts = ("--template", "{sentence} It was", "--labels", " no, yes")
    outcome = call("init", "--model", model, *texts, "--private-data", "--out", tmp_path / "a.run")
    assert "left out backbone.layers.*.mixer.A_log (3 tensors): it is tied to another" in outcome.stdout
    assert outcome.stdout.count("left out ") == 6 and "leave it out" not in outcome.stdout


def test_init__public_data_in_a_table__writes_lines_that_every_node_reads_and_goes_on_with_them(tmp_path: Path) -> None:
    table, lines = tmp_path / "rows.csv", tmp_path / "a.jsonl"
    table.write_text("sentence;label\nfine;yes\n", "utf-8-sig")
    outcome = call("init", *DEMO, "--data", table, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert lines.read_text() == '{"sentence": "fine", "label": 1}\n'
    task = decode_run_file(tmp_path / "a.run").manifest.task
    assert (task.data, task.data_sha256) == ("file:a.jsonl", hashlib.sha256(lines.read_bytes()).hexdigest())
    assert f"data     {lines} has the same rows" in outcome.stdout and f" --data {lines} " in outcome.stdout


def test_init__copy_of_an_earlier_try__is_said_to_be_one_and_not_overwritten(tmp_path: Path) -> None:
    (table := tmp_path / "rows.csv").write_text("sentence;label\nfine;yes\n")
    (tmp_path / "a.jsonl").write_text("other rows\n")
    outcome = call("init", *DEMO, "--data", table, "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"{tmp_path / 'a.jsonl'} exists, perhaps from an earlier try", str(table), "another --out")
    assert (tmp_path / "a.jsonl").read_text() == "other rows\n"


def test_init__data_that_have_the_name_of_their_copy__are_named_as_such_and_kept(tmp_path: Path) -> None:
    """It spoke of an earlier try, and told people to remove their data."""
    (data := tmp_path / "a.jsonl").write_text('{"sentence": "fine", "label": "yes"}\n')
    outcome = call("init", *DEMO, "--data", data, "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"{data} is your --data", "choose another --out")
    assert "emove" not in outcome.error and data.read_text().endswith('"yes"}\n')


@pytest.mark.parametrize(
    ("template", "said"),
    [("x", "template 'x': name fields"), ("{other} x", "field 'other' is missing"), ("{sentence} is", "")],
)
def test_init__settings_with_texts_of_their_own__are_tried_on_the_rows(
    template: str, said: str, tmp_path: Path
) -> None:
    """The run was made, and no node could start in it."""
    (settings := tmp_path / "it.toml").write_text(f"[task]\ntemplate = {template!r}\n", "utf-8-sig")
    given = ("--data", some_reviews(tmp_path, 4), "--settings", settings)
    outcome = call("init", *DEMO, *given, "--out", tmp_path / "a.run")
    assert (said in outcome.error) if said else (outcome.code == 0)
    assert (tmp_path / "a.run").exists() == (not said)


def test_init__private_data_in_a_table__are_read_as_they_are(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("sentence;label\nfine;yes\n")
    outcome = call("init", *DEMO, "--data", table, "--private-data", "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert f" --data {table} " in outcome.stdout and not (tmp_path / "a.jsonl").exists()


def test_init__a_wrong_row__is_said_before_a_model_is_looked_for(tmp_path: Path) -> None:
    (data := tmp_path / "rows.csv").write_text("text,label\nfine,1\n")
    refused = call("init", "--model", "nobody/nothing", "--task", "sst2", "--data", data, "--out", tmp_path / "a.run")
    assert_teaches(refused, "no column 'sentence'", "'text', 'label'")
    assert "nobody/nothing" not in refused.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--learning-rate", "nan", "must be a number of 1e-09 ... 1024"),
        ("--learning-rate", "5000", "must be a number of 1e-09 ... 1024"),
        ("--settings", "absent.toml", "cannot read the settings file absent.toml"),
        ("--settings", "bad.toml", "bad.toml: not valid TOML"),
    ],
)
def test_init__wrong_rate_or_settings__is_said_before_a_model_is_looked_for_or_a_key_made(
    option: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of gigabytes was fetched, hashed and loaded before the slip was named."""
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("steps = [\n")
    given = ("--task", "sst2", "--data", some_reviews(tmp_path, 4), option, value)
    refused = call("init", "--model", "nobody/nothing", *given, "--out", "a.run")
    assert_teaches(refused, value, said)
    assert "nobody/nothing" not in refused.stderr and not Path("a.key").exists()


@pytest.mark.parametrize("rate", ["0", "nan", "2000"])
def test_init__learning_rate_out_of_bounds__is_refused_before_a_basis_is_looked_for(
    rate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took as long as to find a basis, minutes with a real model, until the flag was refused."""
    looked = counted(monkeypatch, calibration, "calibrate")
    refused = call("init", *DEMO, "--learning-rate", rate, "--out", tmp_path / "a.run")
    assert_teaches(refused, f"--learning-rate {rate}: must be a number of 1e-09 ... 1024", "such as 0.001")
    assert not looked


@pytest.mark.parametrize("options", [(), ("--learning-rate", 0.01)])
def test_init__no_rate_was_found__says_so_and_names_no_option_that_nobody_typed(
    options: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calibration.calibrate

    def rateless(*arguments: Any) -> object:
        made = found(*arguments)
        assert made is not None
        return replace(made, learning_rate=6.25e-33)

    monkeypatch.setattr(calibration, "calibrate", rateless)
    outcome = call("init", *DEMO, "--data", some_reviews(tmp_path, 40), *options, "--out", tmp_path / "a.run")
    if options:
        assert outcome.code == 0, outcome
    else:
        assert_teaches(outcome, "no learning rate was found", "e-33", "--plain")
        assert "--learning-rate 6" not in outcome.stderr and not (tmp_path / "a.basis").exists()


@pytest.mark.parametrize(
    ("rows", "labels_max", "why"),
    [
        (16, 0, "over 129 label words (here are 2), or for layers that are not known"),
        (264, 128, "over 256 rows a step (--batch-rows 264)"),
    ],
)
def test_init__more_rows_or_label_words_than_a_basis_has_room_for__says_that_directions_are_drawn(
    rows: int, labels_max: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made a run that learns far less, and only the line `method` said how; then it gave three reasons for one."""
    monkeypatch.setattr("sfnode.training.calibration.found_basis.RANK_MAX", labels_max)
    data, out = some_reviews(tmp_path, 32), tmp_path / "a.run"
    outcome = call("init", *DEMO, "--data", data, "--batch-rows", rows, "--out", out)
    assert outcome.code == 0, outcome
    assert f"Warning: no basis can be made for {why}: the run measures slopes" in outcome.stderr


@pytest.mark.parametrize("options", [("--batch-rows", 300), ("--batch-rows", 264, "--core", "dense")])
def test_init__more_rows_than_a_dense_message_stands_for__is_refused_with_the_most_that_it_may_be(
    options: tuple[object, ...], tmp_path: Path
) -> None:
    """It spoke of --directions and --shares, which nobody had typed, or listed all that a basis needs."""
    outcome = call("init", *DEMO, "--data", some_reviews(tmp_path, 32), *options, "--out", tmp_path / "a.run")
    assert_teaches(outcome, f"--batch-rows {options[1]}: ", "at most 256 rows", "as many or fewer", "multiple of 8")
    assert not (tmp_path / "a.run").exists()


@pytest.mark.parametrize(("count", "rows", "why"), [(4, 16, "basis from: 4, where 32"), (32, 264, "over 256 rows a")])
@pytest.mark.parametrize("rate", ["0.1", "5"])
def test_init__rate_for_a_basis_that_cannot_be_made__is_refused_and_says_why(
    rate: str, count: int, rows: int, why: str, tmp_path: Path
) -> None:
    """Along random directions 0.1 was three hundred times the usual rate; of 5 it said "a number of 1e-09 ... 1"."""
    given = ("--data", some_reviews(tmp_path, count), "--batch-rows", rows, "--learning-rate", rate)
    refused = call("init", *DEMO, *given, "--out", tmp_path / "a.run")
    assert_teaches(refused, f"--learning-rate {rate} is one for a dense core", why, "--core canonical")
    outcome = call("init", *DEMO, *given[:-1], 0.001, "--core", "canonical", "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome


def test_init__rows_that_are_no_multiple_of_the_directions_of_other_runs__make_a_dense_core(tmp_path: Path) -> None:
    """It asked for a multiple of --directions, which no dense core has."""
    out = tmp_path / "a.run"
    outcome = call("init", *DEMO, "--data", some_reviews(tmp_path, 32), "--batch-rows", 12, "--out", out)
    assert outcome.code == 0 and decode_run_file(out).manifest.method.directions == 12, outcome
