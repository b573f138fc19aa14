"""A node that leaves with the run measures the model first that the run ends with."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from protocol.run import Manifest, sign_manifest
from sfnode.network import NetworkConfig
from sfnode.node.daemon import Daemon
from sfnode.reporter import Reporter
from sfnode.worker_protocol.messages import Estimated, EstimateRequest, EvaluateRequest, Message, Reply
from tests.support.daemons import daemon_in_this_process
from tests.support.fake_worker import FakeWorker, healthy, listening
from tests.support.manifests import OWNER, small_manifest

STEPS, EVERY = 3, 2
LOOKS_S = 2.5  # the node looks each second whether the run is over


class SlowEvaluator(FakeWorker):
    """Evaluates what comes after the first step for longer than a node takes to see that the run is over."""

    async def answer(self, request: Message) -> Reply | bytes:
        """Answer one request."""
        is_late = isinstance(request, EvaluateRequest) and len(self.asked(EstimateRequest)) == STEPS
        await trio.sleep(LOOKS_S if is_late else 0)
        return await super().answer(request)


@pytest.mark.slow
async def test_node__leaves_with_the_run__has_measured_what_the_run_ends_with(tmp_path: Path) -> None:
    manifest: Manifest = replace(small_manifest(), steps=STEPS)
    said = io.StringIO()

    def measured(request: Message) -> Reply:
        found = Estimated(scalars=(1,) * manifest.numbers, loss=0.5, rows=8)
        return found if isinstance(request, EstimateRequest) else healthy(request)

    async with listening(SlowEvaluator(path=tmp_path / "worker.sock", script=measured)) as worker:
        daemon = daemon_in_this_process(
            sign_manifest(manifest, OWNER), tmp_path / "node", network=NetworkConfig(), worker=worker.path
        )
        config = replace(daemon.config, eval_every_steps=EVERY, is_exiting_when_finished=True)
        with trio.fail_after(30):
            await Daemon(config, Reporter(is_json=True, stream=said)).run()
    events = [json.loads(line) for line in said.getvalue().splitlines()]
    told = [(each["event"], each.get("step")) for each in events if each["event"] in ("evaluated", "finished")]
    assert told == [("evaluated", 0), ("evaluated", 2), ("evaluated", 3), ("finished", None)]
    kept = json.loads((tmp_path / "node" / "evaluations.json").read_text())
    assert [each["step"] for each in kept] == [0, 2, 3]
