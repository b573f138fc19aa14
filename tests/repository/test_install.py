"""What is installed: the lock holds every requirement, and the installer leaves out what would need a compiler."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterable
from importlib import metadata
from types import ModuleType

import pytest

from tests import REPOSITORY


def installer() -> ModuleType:
    """deploy/install.py, which is a script and no package of ours."""
    spec = importlib.util.spec_from_file_location("install", REPOSITORY / "deploy" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins() -> list[str]:
    lines = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def normalised(names: Iterable[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def pinned() -> set[str]:
    return normalised(line.partition("==")[0] for line in pins())


def test_lock__every_line__is_one_exact_version_and_no_place() -> None:
    assert [line for line in pins() if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_lock__requirements_of_sfnode_and_libp2p__are_all_pinned() -> None:
    install = installer()
    wanted = [*install.requirements_of_sfnode(["train", "web", "dev"]), *install.requirements_of_libp2p()]
    needed = {install.name_of(line) for line in wanted if "python_version <" not in line}
    assert normalised(needed) - pinned() == set()


def test_lock__torch__is_of_the_range_that_pyproject_allows() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert "torch>=2.6" in project["optional-dependencies"]["train"]
    assert "torch==2.13.0" in pins()


def test_install__node_without_training__asks_for_no_torch() -> None:
    install = installer()
    names = {install.name_of(line) for line in install.requirements_of_sfnode([])}
    assert {"libp2p", "trio", "pynacl"} <= names
    assert names & {"torch", "transformers", "safetensors", "tokenizers"} == set()


def test_install__libp2p__still_asks_for_the_package_that_is_left_out() -> None:
    """Once it no longer does, deploy/install.py has done its duty and can go."""
    install = installer()
    names = {install.name_of(line) for line in install.requirements_of_libp2p()}
    assert install.LEFT_OUT in names
    assert metadata.version("libp2p") == "0.8.1"


def test_install__unknown_extra__names_those_that_exist() -> None:
    with pytest.raises(SystemExit) as stopped:
        installer().requirements_of_sfnode(["tarin"])
    assert (
        str(stopped.value)
        == "install: no extra tarin in pyproject.toml; there are data, dev, privacy, quantised, train, web"
    )
