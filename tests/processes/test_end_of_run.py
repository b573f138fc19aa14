"""Nodes that leave when the run is over: real processes with workers of unequal speed end with equal bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.endings import UnequalNetwork, run_network, run_testnet

pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(180)]

# The last one's first update comes when the others have long finished; a node once left after 5 s of quiet.
NETWORK = UnequalNetwork(name="short", steps=10, paces_ms=(100, 1_000, 14_000))


def test_join__exit_when_finished__waits_for_the_slowest_and_all_leave_with_equal_bits(tmp_path: Path) -> None:
    ended = run_network(NETWORK, tmp_path)

    assert ended.is_equal, ended
    assert min(ended.equal_peers) >= 1 and min(ended.own_updates) >= 1, ended


def test_testnet__unequal_paces__stops_only_when_all_hold_what_the_slowest_made(tmp_path: Path) -> None:
    ended = run_testnet(UnequalNetwork(name="short", steps=10, paces_ms=(100, 1_000, 6_000)), tmp_path)

    assert ended.is_equal and len(ended.digests) == 4, ended
    assert min(ended.equal_peers) >= 1 and min(ended.own_updates) >= 1, ended
