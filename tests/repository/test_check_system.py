"""deploy/check-system.sh names what a machine lacks. The machines are folders of stubs that are the whole PATH."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY

SCRIPT = REPOSITORY / "deploy" / "check-system.sh"
# A Python as far as the script asks: its version, whether it has venv, where its headers are.
PYTHON_STUB = """#!/bin/sh
case "$*" in
    --version) echo "Python {version}.1" ;;
    *version_info*) echo {version} ;;
    *ensurepip*) exit {venv_status} ;;
    *sysconfig*) echo {headers} ;;
    *) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A folder that stands for a whole machine's commands."""

    folder: Path

    def has(self, name: str, script: str = "#!/bin/sh\nexit 0\n") -> Machine:
        """Add a command."""
        path = self.folder / name
        path.write_text(script)
        path.chmod(0o755)
        return self

    def has_python(self, version: str, *, name: str = "python3", has_venv: bool = True, headers: str = "/") -> Machine:
        stub = PYTHON_STUB.format(version=version, venv_status=0 if has_venv else 1, headers=headers)
        return self.has(name, stub)

    def is_kind(self, system: str, architecture: str) -> Machine:
        return self.has("uname", f'#!/bin/sh\nif [ "$1" = -s ]; then echo {system}; else echo {architecture}; fi\n')

    def is_user(self, number: int) -> Machine:
        return self.has("id", f"#!/bin/sh\necho {number}\n")

    def check(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the script on this machine."""
        shell = shutil.which("sh")
        assert shell is not None
        environment = {"PATH": str(self.folder), "SFNODE_VENV": str(self.folder / "venv"), **variables}
        return subprocess.run([shell, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Debian on x86_64, as root, with nothing installed."""
    return Machine(folder=tmp_path).is_kind("Linux", "x86_64").is_user(0).has("apt-get")


def test_check_system__python_and_nothing_else__is_enough(machine: Machine) -> None:
    result = machine.has_python("3.11").check()
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{machine.folder}/python3\n"


def test_check_system__no_python__names_it_with_the_command(machine: Machine) -> None:
    result = machine.check()
    assert (result.returncode, result.stdout) == (1, "")
    assert "Python 3.11 or newer (found: no python3)" in result.stderr
    assert "  apt-get update && apt-get install -y python3 python3-venv\n" in result.stderr


def test_check_system__old_python__names_its_version_and_a_newer_one(machine: Machine) -> None:
    result = machine.has_python("3.9").check()
    assert result.returncode == 1
    assert "found: Python 3.9.1" in result.stderr
    assert "install -y python3.11 python3.11-venv" in result.stderr


def test_check_system__newer_python_beside_an_old_one__is_chosen(machine: Machine) -> None:
    result = machine.has_python("3.9").has_python("3.12", name="python3.12").check()
    assert (result.returncode, result.stdout) == (0, f"{machine.folder}/python3.12\n")


def test_check_system__python_with_wheels_beside_a_newer_one__is_chosen(machine: Machine) -> None:
    result = machine.has_python("3.14").has_python("3.13", name="python3.13").check()
    assert (result.returncode, result.stdout) == (0, f"{machine.folder}/python3.13\n")


def test_check_system__python_named_by_the_user__is_taken(machine: Machine) -> None:
    result = machine.has_python("3.12").has_python("3.11", name="mine").check(PYTHON="mine")
    assert (result.returncode, result.stdout) == (0, f"{machine.folder}/mine\n")


def test_check_system__no_venv_module__names_its_package(machine: Machine) -> None:
    result = machine.has_python("3.12", has_venv=False).check()
    assert result.returncode == 1
    assert "the venv module of Python 3.12" in result.stderr
    assert "install -y python3.12-venv\n" in result.stderr


def test_check_system__ordinary_user__is_told_to_use_sudo(machine: Machine) -> None:
    result = machine.is_user(1_000).check()
    assert "  sudo apt-get update && sudo apt-get install -y python3" in result.stderr


@pytest.mark.parametrize(
    ("manager", "command"),
    [("dnf", "dnf install python3\n"), ("brew", "brew install python@3.12\n"), ("other", "your system's package")],
)
def test_check_system__other_package_manager__is_named(machine: Machine, manager: str, command: str) -> None:
    (machine.folder / "apt-get").unlink()
    assert command in machine.has(manager).check().stderr


def test_check_system__python_without_wheels_and_no_compiler__names_both_packages(machine: Machine) -> None:
    result = machine.has_python("3.14", headers="/nowhere").check()
    assert result.returncode == 1
    assert "a C compiler" in result.stderr
    assert "the headers of Python 3.14" in result.stderr
    assert "install -y gcc python3.14-dev\n" in result.stderr


def test_check_system__python_without_wheels_but_a_compiler__is_enough(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    result = machine.has_python("3.14", headers=str(tmp_path)).has("cc").check()
    assert (result.returncode, result.stderr) == (0, "")


def test_check_system__compiled_packages_already_in_the_environment__need_no_compiler(machine: Machine) -> None:
    (machine.folder / "venv" / "bin").mkdir(parents=True)
    Machine(folder=machine.folder / "venv" / "bin").has("python")
    result = machine.has_python("3.14", headers="/nowhere").check()
    assert (result.returncode, result.stderr) == (0, "")
