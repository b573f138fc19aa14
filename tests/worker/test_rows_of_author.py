"""Whose turn it is: private rows are taken by their author, public ones drawn by seeds that anyone can check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.events import WorkerReady
from protocol.run.manifest import sign_manifest
from sfnode.worker_protocol.messages import OpenSession
from tests.support.manifests import OWNER, small_manifest
from tests.worker.test_trainer import AUTHOR, running


@pytest.mark.parametrize(("data", "author"), [("private", AUTHOR.author), ("embedded:reviews", None)])
async def test_trainer__private_data__have_their_turn_and_public_ones_are_drawn_by_seeds(
    data: str, author: bytes | None, tmp_path: Path
) -> None:
    run = replace(small_manifest(), task=replace(small_manifest().task, data=data))
    async with running(tmp_path, signed=sign_manifest(run, OWNER)) as bench:
        assert await bench.next() == WorkerReady()
        (opened,) = bench.worker.asked(OpenSession)
        assert isinstance(opened, OpenSession) and opened.author == author
