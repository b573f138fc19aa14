"""What commands import: libp2p takes a second and torch takes three, so only those who need them wait for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests import REPOSITORY
from tests.support.manifests import OWNER, small_manifest

_PROGRAM = """
import json, sys
from sfnode.cli import main
found = {{}}
for words in json.loads(sys.argv[1]):
    sys.argv = ["sfnode", *words]
    try:
        main()
    except SystemExit:
        pass
    found[" ".join(words)] = [name for name in {wanted!r} if name in sys.modules]
print()
print(json.dumps(found))
"""
_HEAVY = ("libp2p", "torch", "transformers")


def imported(*commands: list[str], wanted: tuple[str, ...] = _HEAVY) -> dict[str, list[str]]:
    """Return what of ``wanted`` a process has imported after each command, one after the other in it."""
    program = [sys.executable, "-c", _PROGRAM.format(wanted=wanted), json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_version__asked_for__loads_no_command_and_none_of_what_they_stand_on() -> None:
    wanted = (*_HEAVY, "numpy", "trio", "protocol.run", "sfnode.cli.options")
    assert imported(["--version"], wanted=wanted) == {"--version": []}


def test_help__of_all_commands__loads_neither_libp2p_nor_torch() -> None:
    assert imported(["--help"], wanted=(*_HEAVY, "sfnode.cli.join")) == {"--help": ["sfnode.cli.join"]}


def test_command__that_looks_at_a_directory__loads_neither_libp2p_nor_torch(tmp_path: Path) -> None:
    """Nor does `start`, before it refuses what is no node."""
    Store(DataDirectory(tmp_path), sign_manifest(small_manifest(), OWNER)).close()
    looking = ("status", "log verify", "run show", "config show", "stop")
    (tmp_path / "empty").mkdir()
    commands = [[*words.split(), str(tmp_path)] for words in looking] + [["start", str(tmp_path / "empty")]]
    assert imported(*commands) == {" ".join(words): [] for words in commands}
