"""Whole files on the disk: what a power cut cannot take back, and what waits under a name that could be foreseen."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.disk import write_durably, write_new
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest


def test_write_durably__new_file__content_is_synced_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut could take a new identity.key back, name and all, after its public key had been shown."""
    synced: list[int] = []
    monkeypatch.setattr("sfnode.storage.disk.os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    write_durably(tmp_path / "identity.key", b"seed")
    assert synced == [(tmp_path / "identity.key").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("is_link", [False, True])
def test_write_durably__file_or_link_waits_under_the_name_with_our_process_id__is_not_written_to(
    is_link: bool, tmp_path: Path
) -> None:
    """A fault once: in a folder that others can write, they read the secret key, or had another file overwritten."""
    key, other = tmp_path / "identity.key", tmp_path / "other"
    planted = key.with_name(f"{key.name}.{os.getpid()}.tmp")
    other.write_bytes(b"precious")
    planted.symlink_to(other) if is_link else os.link(other, planted)
    write_durably(key, b"seed", mode=0o600)
    assert (key.read_bytes(), other.read_bytes()) == (b"seed", b"precious")
    assert key.stat().st_mode & 0o777 == 0o600 and not key.is_symlink()
    assert key.stat().st_ino != other.stat().st_ino


@pytest.mark.parametrize("is_there", [False, True])
def test_write_durably__written__leaves_nothing_beside_it(is_there: bool, tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    if is_there:
        path.write_bytes(b"older, and longer")
    write_durably(path, b"seed")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("identity.key", b"seed")]


def test_write_durably__folder_has_the_name__is_an_operator_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "curve.svg").mkdir()
    with pytest.raises(OperatorError, match=r"cannot write .*curve\.svg"):
        write_durably(tmp_path / "curve.svg", b"picture")
    assert [path.name for path in tmp_path.iterdir()] == ["curve.svg"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF])
def test_write_new__file_system_cannot_sync_a_folder__is_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was there, yet the first try said that it could not be written, and the second that it existed."""
    sync = os.fsync

    def sync_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr("sfnode.storage.disk.os.fsync", sync_files_only)
    write_new(tmp_path / "my.run", [b"run"])
    assert (tmp_path / "my.run").read_bytes() == b"run"


def test_write_new__file_system_has_no_links__is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE answers ENOSYS for what a file system does not have: no key, run file or export could be written there."""

    def no_link(*_paths: Path) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("sfnode.storage.disk.os.link", no_link)
    write_new(tmp_path / "my.key", [b"key"])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("my.key", b"key")]


def test_write_new__earlier_try_was_killed__removes_what_it_has_left(tmp_path: Path) -> None:
    """A key, say, which nobody uses. Another command may be writing at this moment."""
    left = "my.key.7fffffff89abcdef.tmp"  # of a process that is no more
    others = {"my.key.old.tmp", "a.my.key.7fffffff89abcdef.tmp", f"my.key.{os.getpid():08x}89abcdef.tmp"}
    for name in (left, *others):
        (tmp_path / name).touch()
    write_new(tmp_path / "my.key", [b"key"])
    assert {path.name for path in tmp_path.iterdir()} == {"my.key", *others}


def test_store__earlier_write_was_killed__removes_what_it_has_left(tmp_path: Path) -> None:
    """Nothing ever did. A command may be writing at this moment."""
    names = ["status.json.0123456789abcdef.tmp", "stop.0123456789abcdef.tmp", "my.tmp"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, None if name.startswith("stop") else (0, 0))
    Store(DataDirectory(tmp_path), sign_manifest(small_manifest(), OWNER)).close()
    assert [name for name in names if (tmp_path / name).exists()] == names[1:]
