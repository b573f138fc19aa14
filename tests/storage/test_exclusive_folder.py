"""A node's folder and key are one user's alone: made so, closed where they are not, refused where they are others'."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.storage import exclusive_folder
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.exclusive_folder import LOCK_FILE
from sfnode.storage.key_file import KeyFile
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_claim__no_folder__is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert DataDirectory(tmp_path / "a" / "node").claim() is False
    assert mode_of(tmp_path / "a" / "node") == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o701])
def test_claim__folder_that_others_can_enter__is_closed_and_said(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    folder.chmod(mode)
    assert DataDirectory(folder).claim() is True
    assert mode_of(folder) == 0o700
    assert DataDirectory(folder).claim() is False


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [("holiday.jpg", True), (".bashrc", True), ("lost+found", False), ("identity.key", False), ("end.json", True)],
)
def test_claim__open_folder_with_other_files__stays_as_it_is(name: str, is_refused: bool, tmp_path: Path) -> None:
    """`sfnode join --data-dir ~` would have closed the whole home to everybody else."""
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / name).touch()
    if is_refused:
        with pytest.raises(OperatorError, match=f"holds other files, such as '{name}'.*a new or an empty --data-dir"):
            DataDirectory(folder).claim()
    else:
        DataDirectory(folder).claim()
    assert mode_of(folder) == (0o755 if is_refused else 0o700)


def test_claim__folder_of_another_user__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.storage.exclusive_folder.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OperatorError, match=f"{tmp_path} belongs to another user.*another --data-dir"):
        DataDirectory(tmp_path).claim()


def test_claim__another_users_file_in_it__is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "identity.key").touch()
    monkeypatch.setattr(exclusive_folder, "_is_foreign", lambda path: path.name == "identity.key")
    with pytest.raises(OperatorError, match=r"identity\.key belongs to another user.*remove it"):
        DataDirectory(tmp_path).claim()


def test_claim__file_system_without_permissions__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", lambda *_arguments: None)
    with pytest.raises(OperatorError, match="does not let that be changed"):
        DataDirectory(tmp_path).claim()


def test_check__file_that_goes_away_meanwhile__is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self / "status.json.0123.tmp"]))
    DataDirectory(tmp_path).check()


def test_lock__somebody_looks_at_that_moment__is_had_and_those_who_look_see_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process that polled kept a node from starting in a tenth of the tries; two took each other for a node."""
    folder = DataDirectory(tmp_path)
    os.close(folder.lock())
    with folder.lock_file.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert not folder.is_locked()
        monkeypatch.setattr("time.sleep", lambda _seconds: looked_at.close())
        os.close(folder.lock())


def test_store__new_directory__nobody_else_can_enter_it_or_open_its_lock(tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path / "node"), sign_manifest(small_manifest(), OWNER)).close()
    assert (mode_of(tmp_path / "node"), mode_of(tmp_path / "node" / LOCK_FILE)) == (0o700, 0o600)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EBADF])
def test_lock__file_system_without_locks__says_so_and_no_node_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator was sent to look for another node, which did not run, and `sfnode list` showed it."""
    folder = DataDirectory(tmp_path)
    folder.identity.made_seed()
    os.close(folder.lock())

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OperatorError, match=f"cannot lock {folder.lock_file}, .*: {os.strerror(number)}"):
        folder.lock()
    with pytest.raises(OperatorError, match=r"cannot lock .*identity\.key, "), folder.identity.in_use():
        pass
    assert not folder.is_locked()


def test_claim__path_is_too_long_for_the_ledger__says_its_length_and_makes_nothing(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * 200)
    longest /= "y" * (480 - len(str(longest)) - 1 - 100) + "/" + "z" * 99
    Store(DataDirectory(longest), sign_manifest(small_manifest(), OWNER)).close()
    place = tmp_path / "new"
    too_long = place / str(longest.relative_to(tmp_path))
    with pytest.raises(OperatorError, match=r"has 484 bytes, and 480 are allowed. Use a shorter --data-dir"):
        DataDirectory(too_long).lock()
    assert not place.exists()


# --- keys


def test_in_use__key_on_nfs__is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS locks only what is open for writing, flock(2); the key was not, and no node with a key there ever started."""
    lock, made = fcntl.flock, []

    def nfs_lock(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(descriptor, operation)
        made.append(operation)

    key = KeyFile(tmp_path / "identity.key")
    key.made_seed()
    monkeypatch.setattr("fcntl.flock", nfs_lock)
    with key.in_use(), pytest.raises(OperatorError, match="another node of this machine runs"), key.in_use():
        pass
    assert set(made) == {fcntl.LOCK_EX | fcntl.LOCK_NB}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_load_seed__key_that_others_can_read_or_write__is_refused(mode: int, tmp_path: Path) -> None:
    key = tmp_path / "owner.key"
    KeyFile(key).store(bytes(32))
    assert mode_of(key) == 0o600 and KeyFile(key).seed() == bytes(32)
    key.chmod(mode)
    with pytest.raises(OperatorError, match=f"can read the key in {key}: chmod 600"):
        KeyFile(key).made_seed()


def test_load_seed__key_of_another_user__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts a key where a run's owner is about to make one would own the run."""
    key = tmp_path / "owner.key"
    KeyFile(key).store(bytes(32))
    monkeypatch.setattr("sfnode.storage.key_file.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OperatorError, match=r"belongs to another user.*make a new key"):
        KeyFile(key).made_seed()
