"""The systemd units: what `systemd-analyze` says of them, and that they run commands that exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sfnode.cli.exit_codes import ExitCode
from tests import REPOSITORY
from tests.support.commands import parse_command

UNITS = {kind: REPOSITORY / "deploy" / "systemd" / kind / "sfnode@.service" for kind in ("system", "user")}
ANALYZE = shutil.which("systemd-analyze")
EXPOSURE_MAX = 20  # tenths; 17 by systemd 252, where an unhardened service has 96
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here: the units are NOT verified")


def command_of(unit: str) -> str:
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return str(command)


def analyze(unit: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`systemd-analyze ARGUMENTS UNIT`, on a unit whose program is installed."""
    program = shlex.split(command_of(unit))[0]
    path = folder / "sfnode@.service"
    path.write_text(unit.replace(program, sys.executable))
    command = [ANALYZE or "", *arguments, str(path)]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


def faults(kind: str, unit: str, folder: Path) -> str:
    """What `systemd-analyze verify` objects to; its exit code is 0 for an unknown key."""
    manager = ("--user",) if kind == "user" else ()
    outcome = analyze(unit, folder, "verify", "--man=no", *manager)
    return outcome.stderr + ("" if outcome.returncode == 0 else f"exit code {outcome.returncode}")


@needs_systemd
@pytest.mark.parametrize("kind", UNITS)
def test_unit__systemd_analyze_verify__objects_to_nothing(kind: str, tmp_path: Path) -> None:
    assert faults(kind, UNITS[kind].read_text(), tmp_path) == ""


@needs_systemd
@pytest.mark.parametrize("kind", UNITS)
def test_unit__with_a_key_that_systemd_does_not_know__is_objected_to(kind: str, tmp_path: Path) -> None:
    unit = UNITS[kind].read_text().replace("NoNewPrivileges=", "NoNewPrivilege=")
    assert "Unknown key" in faults(kind, unit, tmp_path)


@needs_systemd
def test_unit__of_the_system__is_hardened(tmp_path: Path) -> None:
    threshold = f"--threshold={EXPOSURE_MAX}"
    hardened = analyze(UNITS["system"].read_text(), tmp_path, "security", "--offline=true", threshold)
    assert hardened.returncode == 0, hardened.stdout[-500:] + hardened.stderr
    bare = re.sub(r"^(Protect|Private|Restrict|SystemCall|Capab).*\n", "", UNITS["system"].read_text(), flags=re.M)
    assert analyze(bare, tmp_path, "security", "--offline=true", threshold).returncode != 0


@pytest.mark.parametrize("kind", UNITS)
def test_unit__its_command__is_one_of_sfnode_and_a_wrong_one_is_not_repeated(kind: str) -> None:
    unit = UNITS[kind].read_text()
    program, *arguments = shlex.split(command_of(unit))
    assert Path(program).name == "sfnode" and arguments[0] == "start"
    parse_command(arguments)
    assert f"RestartPreventExitStatus={ExitCode.USAGE.value}\n" in unit and "Restart=on-failure\n" in unit
    assert "KillSignal" not in unit  # SIGTERM, at which a node says goodbye


@pytest.mark.parametrize("kind", UNITS)
def test_unit__what_it_may_take__has_a_limit(kind: str) -> None:
    """A node that leaks ends itself, and not what else runs on the machine."""
    limits = dict(re.findall(r"^(Memory\w+|TasksMax)=(\d+)%?$", UNITS[kind].read_text(), re.MULTILINE))
    assert 0 < int(limits["MemoryHigh"]) < int(limits["MemoryMax"]) <= 80 and 0 < int(limits["TasksMax"]) <= 512


def test_unit__of_the_system__finds_the_model_where_a_start_by_hand_has_put_it() -> None:
    """It named a cache of its own: the model, fetched under the user's home by hand, was fetched once more."""
    text = UNITS["system"].read_text()
    assert re.findall(r"^Environment=(.*)$", text, re.MULTILINE) == ["HOME=/var/lib/sfnode"]
    assert "--home-dir /var/lib/sfnode " in (REPOSITORY / "docs" / "running.md").read_text()


def test_unit__of_the_system__lets_the_node_see_the_programs_of_others() -> None:
    """With ProtectProc=invisible, --pause-when never found one, and did not say so."""
    assert not re.search(r"^(ProtectProc|ProcSubset)=", UNITS["system"].read_text(), re.MULTILINE)
