"""A folder with all that an operator may name by mistake: good files, wrong ones, nodes in every state, and devices.

A guard says afterwards whether anything that a person owns in it was changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import SignedManifest
from sfnode.storage.data_directory import LEDGER_FILE, STATUS_FILE, DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.storage.statement_files import write_statements
from sfnode.storage.stored_basis import BASIS_FILE
from tests.support.daemons import demo_run, write_run
from tests.support.dense_runs import dense_demo_run
from tests.support.ledgers import seal, signer
from tests.support.manifests import OWNER, OWNER_SEED

NODES: Final = ("node", "node-of-other-run", "node-damaged", "node-cut-off", "node-without-ledger", "node-with-folders")
_RECORDS: Final = 4
_HUGE_BYTES: Final = 1 << 40  # with nothing on the disk; more than a machine has memory
_GONE_BY_ITSELF: Final = ("-wal", "-shm")  # what SQLite makes and removes where it reads


def plant(folder: Path) -> None:
    """Fill an empty folder."""
    signed, basis = dense_demo_run(steps=4_096, admission="invite")
    other = demo_run(steps=16, admission="invite", name="other")
    (folder / "owner.key").touch(0o600)
    (folder / "owner.key").write_bytes(OWNER_SEED.hex().encode())
    KeyFile(folder / "other.key").made_seed()
    write_run(signed, folder / "good.run")
    write_run(other, folder / "other.run")
    for name in NODES:
        _make_node(folder / name, other if name == "node-of-other-run" else signed)
        if name != "node-of-other-run":
            (folder / name / BASIS_FILE).write_bytes(basis)
    (folder / "node-damaged" / LEDGER_FILE).write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    for name in ("node.toml", STATUS_FILE, "evaluations.json", IDENTITY_FILE):
        (folder / "node-damaged" / name).write_bytes(b"\xff\x00\x1b[31m{[")
    cut = folder / "node-cut-off" / "manifest.run"
    cut.write_bytes(cut.read_bytes()[:100])
    (folder / "node-without-ledger" / LEDGER_FILE).unlink()
    for name in (LEDGER_FILE, IDENTITY_FILE):
        (folder / "node-with-folders" / name).unlink()
        (folder / "node-with-folders" / name).mkdir()
    _plant_files(folder, signed)


def _make_node(folder: Path, signed: SignedManifest) -> None:
    codec = StatementCodec(signed.manifest)
    with closing(Store(DataDirectory(folder), signed)) as store:
        store.add_statements([codec.admit(OWNER, signer(1).author)])
        store.add([seal(signed.manifest, 1, step) for step in range(_RECORDS)], is_durable=True)
    KeyFile(folder / IDENTITY_FILE).made_seed()
    (folder / "node.toml").write_text("threads = 2\n")


def _plant_files(folder: Path, signed: SignedManifest) -> None:
    (folder / "photos").mkdir()
    (folder / "photos" / "holiday.jpg").write_bytes(b"\xff\xd8\xff\xe0 a beach")
    (folder / "photos" / "loss.svg").write_text("<svg>my own drawing</svg>")
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(bytes(range(256)) * 64)
    (folder / "letter.txt").write_text("Dear Anna,\n")
    (folder / "rows.jsonl").write_text('{"text": "a fine film", "label": 1}\n' * 40)
    (folder / "passphrase").touch(0o600)
    (folder / "passphrase").write_text("correct horse battery staple\n")
    write_statements(folder / "good.statements", [])
    with (folder / "huge").open("wb") as huge:
        huge.truncate(_HUGE_BYTES)
    (folder / "hollow").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "null").symlink_to("/dev/null")
    (folder / "endless").symlink_to("/dev/zero")
    (folder / "full").symlink_to("/dev/full")
    (folder / "broken-disk").symlink_to("/proc/self/mem")
    (folder / "lost").symlink_to(folder / "nowhere")
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "node-link").symlink_to(folder / "node")


class Guard:
    """Knows a planted folder as it was, and puts it back."""

    def __init__(self, folder: Path, backup: Path) -> None:
        self._folder = folder
        self._backup = backup
        _copy(folder, backup)
        self._before = _seen(folder)

    def changes(self) -> tuple[list[str], list[str]]:
        """Paths below the folder that were made, and those that were changed or removed; both as they are now."""
        now = _seen(self._folder)
        made = sorted(now.keys() - self._before.keys())
        lost = sorted(name for name, what in self._before.items() if now.get(name) != what)
        return made, lost

    def restore(self) -> None:
        """Make it what it was."""
        made, lost = self.changes()
        for name in reversed([*made, *lost]):
            path = self._folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for name in lost:
            _copy(self._backup / name, self._folder / name)
        if lost:
            self._before = _seen(self._folder)
        for path in self._folder.rglob("ledger.sqlite3-*"):
            path.unlink()


def _copy(source: Path, target: Path) -> None:
    """As `shutil.copytree`, with pipes and holes."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        for path in source.iterdir():
            _copy(path, target / path.name)
    elif source.is_fifo():
        os.mkfifo(target)
    elif source.stat().st_size == _HUGE_BYTES:
        with target.open("wb") as huge:
            huge.truncate(_HUGE_BYTES)
    else:
        shutil.copy2(source, target)


def _seen(folder: Path) -> Mapping[str, tuple[int, ...]]:
    """What each path below ``folder`` is: a file's number, size and times tell whether anything was written to it."""
    found: dict[str, tuple[int, ...]] = {}
    places = [""]
    for place in places:  # it grows
        with os.scandir(folder / place) as entries:
            here = [entry for entry in entries if not entry.name.endswith(_GONE_BY_ITSELF)]
        found |= {f"{place}{entry.name}": _written(entry) for entry in here}
        places += [f"{place}{entry.name}/" for entry in here if entry.is_dir(follow_symlinks=False)]
    return found


def _written(entry: os.DirEntry[str]) -> tuple[int, ...]:
    """Nothing of a folder: what is made in it changes its times."""
    if entry.is_dir(follow_symlinks=False):
        return ()
    held = entry.stat(follow_symlinks=False)
    return held.st_mode, held.st_ino, held.st_size, held.st_mtime_ns, held.st_ctime_ns
