"""What commands import: libp2p takes a second and torch takes three, so only those who need them wait for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests import REPOSITORY
from tests.support.manifests import OWNER, small_manifest

_PROGRAM = """
import sys
from sfnode.cli import main
sys.argv = ["sfnode", *sys.argv[2:]]
try:
    main()
finally:
    print([name for name in {wanted!r} if name in sys.modules])
"""
_HEAVY = ("libp2p", "torch", "transformers")


def imported(*arguments: str, wanted: tuple[str, ...] = _HEAVY) -> str:
    """Which of ``wanted`` a command has imported when it ends."""
    command = [sys.executable, "-c", _PROGRAM.format(wanted=wanted), "-", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()[-1]


def test_version__asked_for__loads_no_command_and_none_of_what_they_stand_on() -> None:
    assert imported("--version", wanted=(*_HEAVY, "numpy", "trio", "protocol.run", "sfnode.cli.options")) == "[]"


def test_help__of_all_commands__loads_neither_libp2p_nor_torch() -> None:
    assert imported("--help", wanted=(*_HEAVY, "sfnode.cli.join")) == "['sfnode.cli.join']"


@pytest.mark.parametrize("words", [("status",), ("log", "verify"), ("run", "show"), ("config", "show"), ("stop",)])
def test_command__that_looks_at_a_directory__loads_neither_libp2p_nor_torch(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    Store(DataDirectory(tmp_path), sign_manifest(small_manifest(), OWNER)).close()
    assert imported(*words, str(tmp_path)) == "[]"


def test_start__of_what_is_no_node__loads_no_libp2p_before_it_refuses(tmp_path: Path) -> None:
    assert imported("start", str(tmp_path)) == "[]"
