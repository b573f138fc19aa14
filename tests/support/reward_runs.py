"""Runs of the embedded model that reward answers, in a made-up basis; and rows whose answers get something, or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from protocol.run.manifest import Manifest, SignedManifest, sign_manifest
from protocol.run.task import DATA_PRIVATE, TaskKind, TaskSpec
from tests.support.daemons import demo_run
from tests.support.dense_runs import with_basis
from tests.support.manifests import OWNER
from tests.support.task_specs import write_rows

# The embedded model goes on with "great" or "terrible" and never ends by itself.
WANTED: Final = ("great", "terrible", "terrible")
RULE: Final[dict[str, Any]] = {"check": {"contains": "{wanted}"}, "samples": 4, "tokens": 6}


def rewarded(task: TaskSpec, rule: object = RULE, data: str = DATA_PRIVATE) -> TaskSpec:
    """The task with rewards in place of labels, and rows of one's own, or those of ``data``."""
    return replace(
        task,
        kind=TaskKind.REWARD,
        completion=json.dumps(rule),
        label_words=(),
        data=data,
        data_sha256="" if data == DATA_PRIVATE else task.data_sha256,
    )


def reward_manifest() -> tuple[Manifest, bytes]:
    """A run with the file of its basis."""
    drawn = demo_run(steps=8).manifest
    return with_basis(replace(drawn, task=rewarded(drawn.task)))


def reward_run(folder: Path) -> tuple[SignedManifest, Path]:
    """A signed run, and its basis as a file in ``folder``."""
    manifest, data = reward_manifest()
    basis = folder / "rewards.basis"
    basis.write_bytes(data)
    return sign_manifest(manifest, OWNER), basis


def write_prompts(path: Path, count: int = 8) -> Path:
    """Rows of which the embedded model gets some right, and some wrong."""
    words = ("good", "bad", "fine", "dull")
    rows = [{"sentence": f"a {words[at % 4]} film {at}", "wanted": WANTED[at % 3]} for at in range(count)]
    return write_rows(path, rows)
