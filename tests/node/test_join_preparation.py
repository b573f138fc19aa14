"""What is said before a node starts."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from protocol.run.manifest import sign_manifest
from sfnode.node.join_preparation import prepare
from sfnode.reporter import Reporter
from sfnode.run.node_options import JoinOptions, LimitOptions, RunSource, TrainingOptions
from sfnode.run.run_address import combined
from sfnode.storage.data_directory import DataDirectory
from tests.support.manifests import OWNER, small_manifest


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
