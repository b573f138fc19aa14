"""What one bad peer costs a node: far from what would hurt. The figures themselves: ``benchmarks.bad_peers``."""

from __future__ import annotations

import pytest

from benchmarks import bad_peers

pytestmark = [pytest.mark.process, pytest.mark.slow]  # that they are held off: tests/attacks and tests/network


async def test_bad_peers__one_of_several_kinds__cost_less_than_a_tenfold_of_what_they_may() -> None:
    nested = ("nested arrays instead of hello", "nested arrays, 64 KiB")
    kinds = ("raw garbage", *nested, bad_peers.FORGED, bad_peers.ENDLESS)
    for cost in await bad_peers.measure(kinds):
        assert cost.cpu_ms < 10 * bad_peers.CPU_MS_MAX, cost
        assert cost.memory_kib < 10 * bad_peers.MEMORY_KIB_MAX, cost
