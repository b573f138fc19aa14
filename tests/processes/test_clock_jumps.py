"""The wall clock of a machine jumps, by hours or decades: its node goes on, loses nothing and signs nothing twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import shifted_clock
from tests.support.daemons import JoinProcess, free_port, log_verify
from tests.support.running_nodes import address_in, running, wait_for_updates, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

HOUR_S = 3_600.0
JUMPS_S = (
    5 * HOUR_S,
    -9 * HOUR_S,
    40 * 24 * HOUR_S,
    -50 * 365 * 24 * HOUR_S,
)  # the last one: a machine without a clock


def set_clock(path: Path, offset_s: float) -> None:
    new = path.with_suffix(".new")
    new.write_text(str(offset_s))
    new.replace(path)


def has_updates(node: JoinProcess) -> bool:
    return bool(node.status().get("own_updates", 0) > 2)


def is_shifted_by(node: JoinProcess, other: JoinProcess, offset_s: float) -> bool:
    """Whether the node's own status was written under the shifted clock."""
    apart_s = float(node.status()["time"]) - float(other.status()["time"])
    return abs(apart_s - offset_s) < HOUR_S / 2


def test_clock__jumps_while_a_node_trains__nothing_ends_and_nothing_is_lost(
    paced: Path, run_file: Path, tmp_path: Path
) -> None:
    clock, port = tmp_path / "clock", free_port()
    set_clock(clock, 0.0)
    given = ["--run", str(run_file), "--worker-socket", str(paced)]
    address = address_in(tmp_path / "right", port)
    right = JoinProcess(directory=tmp_path / "right", arguments=[*given, "--listen", f"/ip4/127.0.0.1/tcp/{port}"])
    prefix = (sys.executable, shifted_clock.__file__, str(clock))
    wrong = JoinProcess(directory=tmp_path / "wrong", arguments=[*given, "--bootstrap", address], prefix=prefix)
    with running([right, wrong]):
        for node in (right, wrong):
            wait_until(lambda node=node: has_updates(node), "the node trains", 90.0)  # type: ignore[misc]
        for offset_s in JUMPS_S:
            set_clock(clock, offset_s)
            wait_until(lambda by_s=offset_s: is_shifted_by(wrong, right, by_s), "the clock jumps")  # type: ignore[misc]
            wait_for_updates(wrong)
            wait_for_updates(right)
            assert wrong.status()["peers"] == 1, "a neighbour stays a neighbour"
        assert wrong.stop(20.0) == 0 and not wrong.is_alive
        set_clock(clock, 3 * HOUR_S)
        wrong.start()  # what its last life has saved lies fifty years back
        wait_for_updates(wrong)
        for node in (right, wrong):
            status = node.status()
            assert (status["void_slots"], status["authors"], status["slips"]["count"]) == (0, 2, 0), status
        assert [node.stop(20.0) for node in (wrong, right)] == [0, 0] and not wrong.is_alive
    assert [log_verify(node.directory)["void_slots"] for node in (right, wrong)] == [0, 0]
