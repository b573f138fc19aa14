"""Snapshot files of a node: stored, served, fetched, and what its operator is told."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import OperatorError
from protocol.events import (
    Event,
    FetchFailed,
    FetchSnapshot,
    ReportSnapshot,
    SnapshotArrived,
    SnapshotOutcome,
    StoreSnapshot,
)
from protocol.state.snapshot import encode_snapshot
from sfnode.network.sessions.file_download import Wanted
from sfnode.node.snapshot_files import FileFetcher, SnapshotFiles
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.unexpected_errors import Slips
from tests.support.snapshot_runs import RUN, STEP, attest, true_snapshot

FILE = encode_snapshot(RUN, true_snapshot())
SHA256 = hashlib.sha256(FILE).hexdigest()
WANTED = FetchSnapshot(sha256=SHA256, file_bytes=len(FILE))


class OneFile(FileFetcher):
    """Neighbours that have one file, or none yet."""

    def __init__(self, data: bytes | None = None) -> None:  # no host behind it
        self.data = data
        self.asked: list[str | None] = []

    async def fetch(self, wanted: Wanted) -> bytes | None:
        self.asked.append(wanted.sha256)
        assert wanted.total == len(FILE)
        return self.data


class Kept:
    """The files of a joiner's node, at work."""

    def __init__(self, folder: Path, neighbours: OneFile) -> None:
        self.lines = io.StringIO()
        self.told, self.heard = trio.open_memory_channel[Event](4)
        self.files = SnapshotFiles(DataDirectory(folder), Reporter(is_json=True, stream=self.lines))
        self._neighbours = neighbours

    async def run(self, *effects: StoreSnapshot | FetchSnapshot) -> None:
        """Until all of them are carried out."""
        asking, wanted = trio.open_memory_channel[StoreSnapshot | FetchSnapshot](len(effects))
        with asking:
            for effect in effects:
                asking.send_nowait(effect)
        await self.files.run(self._neighbours, Slips(), wanted, self.told)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]


async def test_files__own_snapshots__are_served_and_the_last_two_kept(tmp_path: Path, autojump_clock: object) -> None:
    kept = Kept(tmp_path, OneFile())
    names = [hashlib.sha256(bytes([number])).hexdigest() for number in range(1, 4)]
    (tmp_path / "snapshot-0.bin").write_text("an operator's own")
    for number, sha256 in enumerate(names, start=1):
        await kept.run(StoreSnapshot(step=number * 1_024, sha256=sha256, data=bytes([number])))
    assert SnapshotFiles(DataDirectory(tmp_path), Reporter()).find(RUN, names[0]) is None
    assert (tmp_path / "snapshot-0.bin").exists()
    for number, sha256 in enumerate(names[1:], start=2):
        found = SnapshotFiles(DataDirectory(tmp_path), Reporter()).find(RUN, sha256)
        assert found is not None and found.read(0, 100) == bytes([number])


async def test_files__nothing_can_be_written__says_so_and_goes_on(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _data: bytes) -> None:
        raise OperatorError(f"cannot write {path}: the disk is full")

    monkeypatch.setattr("sfnode.storage.disk.write_durably", refuse)
    kept = Kept(tmp_path, OneFile(FILE))
    await kept.run(StoreSnapshot(step=STEP, sha256="ab" * 32, data=FILE), WANTED)
    (event,) = kept.events()
    assert event["event"] == "snapshot_not_stored" and "the disk is full" in event["reason"]
    assert kept.heard.receive_nowait() == SnapshotArrived(data=FILE)


async def test_files__snapshot_is_wanted__is_fetched_or_said_to_be_nowhere(
    tmp_path: Path, autojump_clock: object
) -> None:
    neighbours = OneFile()
    kept = Kept(tmp_path, neighbours)
    await kept.run(WANTED)
    assert kept.heard.receive_nowait() == FetchFailed(sha256=SHA256)
    neighbours.data = FILE
    await kept.run(WANTED)
    assert kept.heard.receive_nowait() == SnapshotArrived(data=FILE)
    assert neighbours.asked == [SHA256, SHA256]


def test_files__snapshot_is_used__operator_is_told_whose_it_is(tmp_path: Path) -> None:
    kept = Kept(tmp_path, OneFile())
    authors = tuple(each.author for each in attest(true_snapshot(), 1, 2, 3))
    kept.files.report(ReportSnapshot(outcome=SnapshotOutcome.USED, step=STEP, authors=authors))
    (told,) = kept.events()
    assert told["event"] == "snapshot_used" and told["step"] == STEP and len(told["authors"]) == 3
