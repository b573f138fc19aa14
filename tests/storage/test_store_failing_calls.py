"""A store on a dying disk: every kind of system call fails from every moment of its life on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.storage import failing_calls
from tests.storage.failing_calls import NUMBERS, RECORDS, SIGNED, is_filter_allowed

_PATH = os.pathsep.join(path for path in sys.path if path)


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str, int, list[str]]]:
    """(data directory, call that failed, from which moment on, what the store acknowledged and how it ended)."""
    if not is_filter_allowed():
        pytest.skip("failing disks need a filter of system calls: Linux on x86-64 or arm64, outside of some containers")
    folder = tmp_path_factory.mktemp("dying")
    command = [sys.executable, "-m", failing_calls.__name__, str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": _PATH}, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [(folder / f"{call}-{moment}", call, moment, told) for call, moment, told in rows]


def test_store__any_call_fails_from_any_moment_on__ends_or_stops_with_the_file_and_what_to_do(
    lives: list[tuple[Path, str, int, list[str]]],
) -> None:
    for directory, call, moment, told in lives:
        is_end = told[-1] == "end"
        is_taught = told[-1].startswith("stopped:") and str(directory) in told[-1]
        assert is_end or is_taught, (call, moment, told[-1])
    assert {call for _, call, _, told in lives if told[-1] != "end"} >= {"openat", "pwrite64", "fdatasync"}


def test_store__calls_failed__opens_again_with_all_that_was_acknowledged_and_goes_on(
    lives: list[tuple[Path, str, int, list[str]]],
) -> None:
    for directory, call, moment, told in lives:
        numbers = {kind: [int(n) for name in told if name.startswith(kind) for n in name.split()[1:]] for kind in KINDS}
        store = Store(DataDirectory(directory), SIGNED)
        held = [record for _, record in store.records()]
        acknowledged = [RECORDS[number] for number in sorted(numbers["own"] + numbers["others"])]
        assert held[: len(acknowledged)] == acknowledged, (call, moment)
        assert held == RECORDS[: len(held)], (call, moment)  # at most the batch that was under way, and whole
        assert store.reserved_step >= max(numbers["reserved"], default=-1), (call, moment)
        store.add(RECORDS[len(held) :], is_durable=True)
        assert [record for _, record in store.records()] == RECORDS
        store.close()


KINDS = ("own", "others", "reserved")


def test_store__fsync_fails__nothing_that_must_be_durable_is_acknowledged_any_more(
    lives: list[tuple[Path, str, int, list[str]]],
) -> None:
    """A failed fsync may have dropped what it was to write; asked again, the kernel says that all is well."""
    for _, call, moment, told in lives:
        if call == "fdatasync" and moment > 0:
            assert not any(name.startswith(("own", "reserved")) for name in told[moment - 1 :]), (moment, told)
    assert "fdatasync" in NUMBERS
