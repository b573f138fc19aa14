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
from protocol.events import Event, SnapshotArrived
from protocol.node.node import Node
from protocol.node.node_config import SnapshotUse
from protocol.state.snapshot import encode_snapshot
from sfnode.network.network import Network
from sfnode.network.sessions.file_download import Download
from sfnode.node.snapshot_files import SnapshotFiles, find_file
from sfnode.reporter import Reporter
from tests.support.snapshot_runs import RUN, STEP, Pair, attest, true_snapshot

FILE = encode_snapshot(RUN, true_snapshot())


class OneFile(Network):
    """Neighbours that have one file, or none yet."""

    def __init__(self, data: bytes | None = None) -> None:  # no host behind it
        self.data = data
        self.asked: list[str | None] = []

    async def fetch(self, download: Download) -> bytes | None:
        self.asked.append(download.wanted.sha256)
        assert download.wanted.total == len(FILE)
        return self.data


class Kept:
    """A keeper at work on a joiner's core."""

    def __init__(self, folder: Path, neighbours: OneFile) -> None:
        self.pair = Pair(snapshot=SnapshotUse.ALWAYS)
        self.node: Node = self.pair.joiner
        self.lines = io.StringIO()
        self.told, self.heard = trio.open_memory_channel[Event](4)
        self._keeper = SnapshotFiles(self.node, folder, Reporter(is_json=True, stream=self.lines))
        self._neighbours = neighbours

    async def run(self, seconds: float) -> None:
        """For so many virtual seconds."""
        with trio.move_on_after(seconds):
            await self._keeper.run(self._neighbours, self.told)

    def attested(self) -> None:
        """Three authors have told the joiner, who knows that they are admitted."""
        for each in attest(true_snapshot(), 1, 2, 3):
            self.pair.veteran.snapshots.attestations.add(each.data, is_live=False)
        self.pair.run(lambda: bool(self.node.snapshots.wanted(self.node.sync)))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]


async def test_keeper__own_snapshots__are_served_and_the_last_two_kept(tmp_path: Path, autojump_clock: object) -> None:
    kept = Kept(tmp_path, OneFile())
    names = []
    for number in range(1, 4):
        sha256 = hashlib.sha256(bytes([number])).hexdigest()
        names.append(sha256)
        kept.node.snapshots.made = (number * 1_024, sha256, bytes([number]))
        await kept.run(0.1)
    assert kept.node.snapshots.made is None and find_file(tmp_path, RUN, names[0]) is None
    for number, sha256 in enumerate(names[1:], start=2):
        found = find_file(tmp_path, RUN, sha256)
        assert found is not None and found.read(0, 100) == bytes([number])


async def test_keeper__disk_takes_nothing__says_so_and_goes_on(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _data: bytes) -> None:
        raise OperatorError(f"cannot write {path}: the disk is full")

    monkeypatch.setattr("sfnode.node.snapshot_files.write_durably", refuse)
    kept = Kept(tmp_path, OneFile())
    kept.node.snapshots.made = (STEP, "ab" * 32, FILE)
    await kept.run(1.0)
    (event,) = kept.events()
    assert event["event"] == "snapshot_not_stored" and "the disk is full" in event["reason"]


async def test_keeper__snapshot_is_attested__is_fetched_and_used(tmp_path: Path, autojump_clock: object) -> None:
    neighbours = OneFile()
    kept = Kept(tmp_path, neighbours)
    await kept.run(1.0)
    assert not neighbours.asked
    kept.attested()
    await kept.run(5.0)
    assert set(neighbours.asked) == {hashlib.sha256(FILE).hexdigest()} and len(neighbours.asked) > 1
    assert not kept.heard.statistics().current_buffer_used
    neighbours.data = FILE
    await kept.run(0.1)
    event = kept.heard.receive_nowait()
    assert event == SnapshotArrived(data=FILE)
    kept.node.handle(event, kept.pair.now_ms)
    await kept.run(1.0)
    assert len(neighbours.asked) < 6
    (told,) = kept.events()
    assert told["event"] == "snapshot_used" and told["step"] == STEP and len(told["authors"]) == 3
