"""What is said before a node starts."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.node.join_preparation import prepare
from sfnode.reporter import Reporter
from sfnode.run.node_options import JoinOptions, LimitOptions, RunSource, TrainingOptions
from sfnode.run.run_address import combined
from sfnode.storage.data_directory import DataDirectory
from tests.support.manifests import OWNER, small_manifest
from tests.support.reward_runs import rewarded

DENSE = small_manifest(core="dense")


@pytest.mark.parametrize(
    ("training", "unused"),
    [(TrainingOptions(model="folder", eval_data="rows.jsonl"), ["--model", "--eval-data"]), (TrainingOptions(), None)],
    ids=["a model and rows", "nothing"],
)
async def test_prepare__relay_with_what_trainers_need__says_that_it_makes_no_use_of_it(
    training: TrainingOptions, unused: list[str] | None, tmp_path: Path
) -> None:
    source, lines = RunSource(bootstrap=combined([]), data_dir=DataDirectory(tmp_path / "node")), io.StringIO()
    options = JoinOptions(source=source, training=training, is_relay=True)
    await prepare(sign_manifest(small_manifest(), OWNER), options, Reporter(is_json=True, stream=lines))
    said = [event for event in map(json.loads, lines.getvalue().splitlines()) if event["event"] == "unused_options"]
    assert [each["options"] for each in said] == ([unused] if unused else [])


@pytest.mark.parametrize(("typed", "bytes_per_s"), [("80kB/s", 80_000), (None, 0)])
async def test_prepare__max_upload__limits_the_network(typed: str | None, bytes_per_s: int, tmp_path: Path) -> None:
    source = RunSource(bootstrap=combined([]), data_dir=DataDirectory(tmp_path / "node"))
    options = JoinOptions(source=source, is_relay=True, limits=LimitOptions(max_upload=typed))
    config = await prepare(sign_manifest(small_manifest(), OWNER), options, Reporter(stream=io.StringIO()))
    assert config.network.upload_bytes_per_s == bytes_per_s


@pytest.mark.parametrize(
    ("own_command", "said"),
    [
        (None, "jsonl:2: answer is '', and no text, which the rule asks for"),
        ("true", "--model folder is not the run's model"),  # what is looked at next
    ],
)
async def test_prepare__own_row_with_nothing_to_contain__is_named_unless_an_own_command_judges(
    own_command: str | None, said: str, tmp_path: Path
) -> None:
    """A worker read such rows in silence, and no answer to them was ever right."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "Is it?", "answer": "yes"}\n{"text": "And?", "answer": ""}\n')
    rule = {"check": {"contains": "{answer}"}, "samples": 2, "tokens": 4}
    task = replace(rewarded(DENSE.task, rule), template="{text}")
    source = RunSource(bootstrap=combined([]), data_dir=DataDirectory(tmp_path / "node"))
    training = TrainingOptions(model="folder", data=str(rows), private_reward=own_command)
    options, signed = JoinOptions(source=source, training=training), sign_manifest(replace(DENSE, task=task), OWNER)
    with pytest.raises(OperatorError, match=said):
        await prepare(signed, options, Reporter(stream=io.StringIO()))


@pytest.mark.parametrize(
    ("rule", "has_warned"),
    [
        (None, False),  # labels, where such a command is refused
        ({"check": {"exact": "{answer}"}, "samples": 2, "tokens": 4}, False),
        ({"check": {"exact": "{answer}"}, "samples": 2, "tokens": 4, "answer": "{answer}"}, True),
    ],
)
async def test_prepare__own_command_where_rows_name_answers__is_said_to_judge_held_out_ones_alone(
    rule: dict[str, object] | None, has_warned: bool, tmp_path: Path
) -> None:
    """A run of labels was said to learn answers that rows name, before the command was refused."""
    rows, lines = tmp_path / "rows.jsonl", io.StringIO()
    rows.write_text('{"text": "Is it?", "sentence": "It", "label": 0, "answer": "yes"}\n')
    task = DENSE.task if rule is None else replace(rewarded(DENSE.task, rule), template="{text}")
    source = RunSource(bootstrap=combined([]), data_dir=DataDirectory(tmp_path / "node"))
    training = TrainingOptions(model="folder", data=str(rows), private_reward="true")
    options, signed = JoinOptions(source=source, training=training), sign_manifest(replace(DENSE, task=task), OWNER)
    with pytest.raises(OperatorError):
        await prepare(signed, options, Reporter(is_json=True, stream=lines))
    assert ("judges_held_out" in lines.getvalue()) is has_warned
