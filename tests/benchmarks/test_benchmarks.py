"""The benchmarks run and report what they promise. No time is asserted; what virtual time and byte counts say is."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks.virtual_network import CountedNetwork
from protocol.events import StoreSnapshot, StoreStatements
from protocol.wire import PeerId
from sfnode.api.virtual_network import VirtualLink
from tests import REPOSITORY


def run(name: str, *arguments: str) -> Any:
    """The JSON document that ``python -m benchmarks.NAME`` writes; here, because each start imports for a second."""
    done = CliRunner().invoke(import_module(f"benchmarks.{name}").main, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def run_alone(name: str, *arguments: str) -> Any:
    """The same of a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ingest__few_updates__tells_every_part() -> None:
    result = run_alone("ingest", "--updates", "100", "--repeats", "1")
    assert result["updates"] == 100
    parts = {"whole", "without_signature", "decode", "seed", "check_signed", "libsodium"}
    assert {name.removesuffix("_us") for name in result if name.endswith("_us")} == parts


@pytest.mark.parametrize("dense", ["0", "4"])
def test_replay__records_kept_in_a_file__same_digests_when_read_again(dense: str, tmp_path: Path) -> None:
    arguments = ("--updates", "400", "--authors", "20", "--dense", dense, "--cache", str(tmp_path / "records"))
    first, second = run("replay_time", *arguments), run("replay_time", *arguments)
    assert first["updates"] == 400 and set(first["limits_us"]) == {"signature_alone", "dense_apply"}
    assert [first[name] for name in ("root", "state_digest")] == [second[name] for name in ("root", "state_digest")]


def test_difference__one_update_missing__costs_four_round_trips_and_less_than_20_kb() -> None:
    shapes = run("difference", "--updates", "8000")
    missing = [cost for costs in shapes.values() for cost in costs if cost["case"].startswith("missing")]
    assert len(shapes) == 3 and len(missing) == 9
    assert all(cost["round_trips"] <= 4 and cost["bytes_up"] + cost["bytes_down"] < 20_000 for cost in missing)


def test_join__peers_that_lie_and_stall__ends_live_without_dropping_an_honest_one() -> None:
    result = run("join_among_impostors", "--authors", "4", "--steps", "64", "--seeds", "1")
    assert set(result) == {"four honest", "wrong digests", "empty promises", "garbage"}
    for runs in result.values():
        assert [found["updates"] for found in runs] == [256]
        assert all(found["bytes_down"] > found["bytes_least"] for found in runs)
        assert not [peer for found in runs for peer in found["dropped"] if peer.startswith("honest")]


def test_counted_network__effects_that_hold_a_state__do_not_fill_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Runs of some thousand steps printed megabytes of snapshots."""
    network = CountedNetwork(seed=0, link=VirtualLink())
    data = bytes(100_000)
    network.carry_out(PeerId("a"), StoreSnapshot(step=1_024, sha256="0" * 64, data=data))
    assert capsys.readouterr().err == ""
    network.carry_out(PeerId("a"), StoreStatements(statements=(data,)))
    assert capsys.readouterr().err == "a: StoreStatements\n"


@pytest.mark.slow
def test_scale__few_nodes__limit_of_hops_costs_time_and_saves_copies(tmp_path: Path) -> None:
    result = run_alone("scale", "--sizes", "8,12", "--nodes", "12", "--draw", str(tmp_path))
    ring = {row["hops_max"]: row for row in result["hop_limits"] if row["graph"] == "ring"}
    assert ring[1]["all_ms"] > 10 * ring[None]["all_ms"]
    assert ring[1]["copies"] < ring[4]["copies"] < ring[None]["copies"]
    assert {row["nodes"] for row in result["sizes"]} == {8, 12}
    for name, rows in (("time", "sizes"), ("traffic", "sizes"), ("hops", "hop_limits")):
        texts = {(part.text or "").strip() for part in ElementTree.parse(tmp_path / f"{name}.svg").iter()}
        assert {row["graph"] for row in result[rows]} <= texts  # each line has its name at its end


def test_heads__few_authors__tells_root_state_and_frontier() -> None:
    (row,) = run("heads", "--authors", "20")["heads"]
    assert {"root_after_one_ms", "root_after_all_ms", "state_after_one_ms", "frontier_ms"} <= set(row)


@pytest.mark.slow  # the rate itself: tests/protocol and tests/properties
def test_author_burst__rate_for_each_author__stops_what_is_pushed_and_not_what_is_asked_for() -> None:
    result = run("author_burst", "--steps", "120", "--seconds", "14")
    assert {name: found["held_of_attacker"] for name, found in result.items()} == {
        "pushed, no rate": "120 to 120",
        "asked for, no rate": "120 to 120",
        "pushed, rate of 5/s": "50 to 50",
        "asked for, rate of 5/s": "120 to 120",
    }


@pytest.mark.slow  # what the commands do: tests/storage and tests/cli
def test_log_files__few_updates__tells_every_command() -> None:
    result = run("log_files", "--updates", "300", "--authors", "3")
    assert len(result) == 6 and all(found["peak_mib"] > 10 for found in result.values())


@pytest.mark.slow  # what a joiner gets from neighbours that lie: tests/processes/test_model_from_peers.py
def test_model_from_peers__one_lies_and_one_stalls__costs_few_bytes_and_the_liar_is_dropped() -> None:
    result = run_alone("model_from_peers", "--megabytes", "12", "--quiet", "0.5")
    bad = result["honest, liar, staller"]
    assert bad["neighbours_left"] == 2 and result["three honest"]["neighbours_left"] == 3
    assert result["three honest"]["bytes_ratio"] < 1.02 and bad["bytes_ratio"] < 1.4  # two pieces of each, at most
    assert {"quiet_updates_per_s", "during_delay_ms"} <= result["with updates"].keys()
