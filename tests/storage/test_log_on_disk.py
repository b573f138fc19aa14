"""A run as one file, with records that stay on the disk: the same goes out and in, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from protocol.crypto.hashing import Author
from protocol.documents.log_file import encode_log
from protocol.state.replica import Replica
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.storage.stored_records import StoredRecords
from tests.storage.test_log_export_import import (
    GOOD,
    MANIFEST,
    PROOF,
    RECORDS,
    SIGNED,
    blocks_of,
    digests,
    make_directory,
)
from tests.support.cli_calls import call
from tests.support.ledgers import seal


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Data directory of a node of the run, with a void slot."""
    return make_directory(tmp_path / "node", [*RECORDS, PROOF])


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ledgers keep four records beside their archive; gives how many they read back, each time."""
    defaults = Replica.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "in_memory_max", 4)
    read, counts = StoredRecords.read, list[int]()

    def counted(self: StoredRecords, author: Author, steps: Sequence[int]) -> list[bytes]:
        counts.append(len(steps))
        return read(self, author, steps)

    monkeypatch.setattr(StoredRecords, "read", counted)
    return counts


def test_log__more_records_than_are_kept_in_memory__same_file_same_directories(
    little_memory: list[int], node: Path, tmp_path: Path
) -> None:
    other = make_directory(tmp_path / "other", [*RECORDS[:30], seal(MANIFEST, 5, 3)])
    for file, directory in (("x.log", node), ("y.log", other)):
        assert call("log", "export", tmp_path / file, "--data-dir", directory).code == 0
        assert sum(little_memory) > 20
        little_memory.clear()
    assert [body for _, body in blocks_of((tmp_path / "x.log").read_bytes())][1] == blocks_of(GOOD)[1][1]
    for target in (tmp_path / "copy", other):
        assert call("log", "import", tmp_path / "x.log", "--data-dir", target).code == 0
        assert sum(little_memory) > 20
        little_memory.clear()
    assert digests(tmp_path / "copy") == digests(node)
    assert call("log", "import", tmp_path / "y.log", "--data-dir", node).code == 0
    assert digests(other) == digests(node)
    assert not list(tmp_path.rglob("*.import-*"))


def test_replayed__more_records_than_are_kept_in_memory__same_state_as_with_all_there(
    little_memory: list[int], node: Path
) -> None:
    full = Replica(MANIFEST)
    for record in (*RECORDS, PROOF):
        full.add(record)
    with DataDirectory(node).replayed(MANIFEST) as replica:
        assert replica.state_digest() == full.state_digest()
        assert set(replica.ledger.slots.envelopes()) == set(full.ledger.slots.envelopes())
    assert sum(little_memory) > 20


def test_log_export__records_come_while_it_reads__are_not_in_the_file(
    little_memory: list[int], node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon may be running: a second payload for a slot would look like a damaged archive."""
    with closing(Store(DataDirectory(node), SIGNED)) as store:
        monkeypatch.setattr(
            "protocol.documents.log_file.encode_log",
            _after(lambda: store.add([seal(MANIFEST, 2, 3, 77)], is_durable=True)),
        )
        assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    assert blocks_of((tmp_path / "x.log").read_bytes())[1] == blocks_of(GOOD)[1]


def _after(happens: Callable[[], None]) -> Callable[..., Iterator[bytes]]:
    def encode(*arguments: object) -> Iterator[bytes]:
        happens()
        return encode_log(*arguments)  # type: ignore[arg-type]

    return encode


def test_log_import__folder_is_a_link_to_a_volume__is_filled(node: Path, tmp_path: Path) -> None:
    """No rename replaces a link or a mount point, such as a container's /data: it failed once all was verified."""
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "volume")
    assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "link").code == 0
    assert (tmp_path / "link").is_symlink() and digests(tmp_path / "volume") == digests(node)
    assert not list((tmp_path / "volume").glob("*.import-*")) and (tmp_path / "volume").stat().st_mode & 0o077 == 0
