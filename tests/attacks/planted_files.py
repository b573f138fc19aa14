"""Another user of the machine puts files where a node writes its key, and locks its data directory."""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocol.run.manifest import sign_manifest
from sfnode.storage.exclusive_folder import LOCK_FILE
from tests.attacks.outcome import Outcome
from tests.support.daemons import JoinProcess, run_sfnode, write_run
from tests.support.manifests import OWNER, small_manifest
from tests.support.patience import Patience

_NOBODY: Final = 65_534
_PROCESSES: Final = 3_000  # how many process ids ahead the attacker prepares: more than start here within seconds
_START_S: Final = 30.0


def planted_files(is_short: bool) -> Outcome:
    """Plant files, links and a key under the names that somebody's new key may get, in a folder open to all."""
    with tempfile.TemporaryDirectory() as name:
        folder, shared, other = Path(name), Path(name) / "shared", Path(name) / "other"
        folder.chmod(0o755)
        shared.mkdir()
        shared.chmod(0o777)  # without the sticky bit: there the system itself helps
        other.write_text("precious")
        with _as_another_user() as who:
            for number in _coming_process_ids():
                (shared / f"read.key.{number}.tmp").touch(0o666)
                (shared / f"link.key.{number}.tmp").symlink_to(other)
            (shared / "own.key").write_text(secrets.token_hex(32))
        planted = {path.lstat().st_ino for path in shared.iterdir()}
        made = [run_sfnode("id", "new", "--out", str(shared / key)).returncode for key in ("read.key", "link.key")]
        taken = run_sfnode("id", "show", "--key", str(shared / "own.key")).returncode == 0
        harm = {
            "the secret key is in a file of the attacker's": (shared / "read.key").lstat().st_ino in planted,
            "another file was overwritten": other.read_text() != "precious",
            "a key of the attacker's was used": taken,
        }
    found = [text for text, is_so in harm.items() if is_so]
    return Outcome(
        before="a key is made, mode 0600",
        during="; ".join(found) or "the keys are new files that nobody else can read; the attacker's is refused",
        after=f"exit codes {made} of those who made keys",
        attacker=f"{2 * _PROCESSES:,} names and a key, put there by {who}",
        bound="no key is read, no file overwritten, no key of another user used",
        is_held=not found and made == [0, 0],
    )


def locked_folder(is_short: bool) -> Outcome:
    """Lock the file by which a node holds its data directory: it cannot start while that lasts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        run_file = folder / "a.run"
        write_run(sign_manifest(small_manifest(), OWNER), run_file)
        node = JoinProcess(directory=folder / "node", arguments=["--run", str(run_file), "--relay"])
        before = _start(node)
        with _locked(node.directory / LOCK_FILE) as attacker:
            during = _start(node)
        after = _start(node)
    return Outcome(
        before=before,
        during=during,
        after=after,
        attacker=attacker,
        bound="the node starts",
        is_held={before, during, after} == {_STARTS},
    )


_STARTS: Final = "the node starts"


def _start(node: JoinProcess) -> str:
    """Start and stop it; what came of it."""
    node.start()
    patience = Patience(_START_S)
    while node.is_alive and not patience.is_over():
        if any(event["event"] == "started" for event in node.events()):
            node.stop()
            return _STARTS
        time.sleep(0.05)
    if node.is_alive:
        node.kill()
    return f"it does not start: {node.last_words()}"


@contextmanager
def _locked(path: Path) -> Iterator[str]:
    """Hold a lock as another user, if they can; says what the attacker did."""
    with _as_another_user() as who:
        if who == "ourselves":  # could lock anything: what keeps others out is looked at instead
            is_closed = path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0
            yield f"nothing: this needs root, to be somebody else; the folder is {'' if is_closed else 'NOT '}closed"
            assert is_closed
            return
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except PermissionError:
            descriptor = -1
    if descriptor < 0:
        yield f"one file, which {who} cannot open"
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield f"one lock, taken by {who}"
    os.close(descriptor)


@contextmanager
def _as_another_user() -> Iterator[str]:
    """Whatever the block does with files, it does as `nobody` if we are root, else as ourselves. Gives who that is."""
    if os.geteuid() != 0:
        sys.stderr.write("not root: the attacker is played by ourselves\n")
        yield "ourselves"
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield "another user"
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _coming_process_ids() -> range:
    """The ids that processes get which start now."""
    with subprocess.Popen(["true"]) as last:
        first = last.pid + 1
    return range(first, first + _PROCESSES)
