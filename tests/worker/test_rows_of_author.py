"""Whose turn it is: private rows are taken by their author, public ones drawn by seeds that anyone can check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.crypto.keys import Signer
from protocol.events import WorkerReady
from protocol.run.manifest import sign_manifest
from sfnode.worker.held_out_measuring import evaluate_alone
from sfnode.worker_protocol.messages import OpenSession
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.support.fake_worker import fake_worker
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


@pytest.mark.parametrize(("data", "is_in_turn"), [("private", True), ("embedded:reviews", False)])
async def test_evaluate_alone__rows__are_taken_as_the_run_takes_them(
    data: str, is_in_turn: bool, tmp_path: Path
) -> None:
    """A bug once: a node's own rows alone were drawn with replacement, and those of the run had their turn."""
    run = replace(small_manifest(), task=replace(small_manifest().task, data=data))
    async with fake_worker(tmp_path) as worker:
        config = TrainingConfig(model=None, data=Path("train.jsonl"), worker_socket=worker.path)
        await evaluate_alone(sign_manifest(run, OWNER), config, bytes(32), steps=1)
    (opened,) = worker.asked(OpenSession)
    assert isinstance(opened, OpenSession) and opened.author == (Signer(bytes(32)).author if is_in_turn else None)
