"""What `sfnode` hands out: lazily, with types and docstrings, and all of it in the reference."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module

import pytest

import sfnode
from tests import REPOSITORY

_STUB = ast.parse((REPOSITORY / "sfnode" / "__init__.pyi").read_text("utf-8"))
TYPED = {
    each.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module
    for each in node.names
    if each.asname
}


def test_names__of_the_api__are_those_of_the_stub_and_come_from_where_it_says() -> None:
    assert set(TYPED) | {"__version__"} <= set(dir(sfnode))
    for name, module in TYPED.items():
        assert getattr(sfnode, name) is getattr(import_module(module), name)


def test_names__classes_and_functions__have_docstrings_and_a_place_in_the_reference() -> None:
    reference = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8")
    shown = set(re.findall(r"\w+", reference))
    assert set(TYPED) - shown == set()
    made = {name: getattr(sfnode, name) for name in TYPED}
    assert [name for name, each in made.items() if callable(each) and not each.__doc__] == []


def test_reference__names_it_shows__come_from_sfnode_and_those_of_the_core_from_protocol() -> None:
    ours, core = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8").split("## The core")
    shown = r"::: (\S+)\n.*\n +members: \[(.*)\]"
    missing = {name for _, names in re.findall(shown, ours) for name in names.split(", ")} - set(TYPED)
    assert missing == set()
    for module, names in re.findall(shown, core):
        assert all(hasattr(import_module(module), name) for name in names.split(", "))


def test_names__parameters_of_the_api__can_be_given_without_names_of_other_modules() -> None:
    assert sfnode.VirtualWorld(link=sfnode.VirtualLink()).link == sfnode.VirtualWorld().link
    assert sfnode.NoiseConfig(multiplier=1.0).epsilon_max is None
    assert sfnode.JoinOptions().source.run_file is None
    assert issubclass(sfnode.StateMismatchError, sfnode.SfnodeError)


def test_names__unknown_one__is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        sfnode.simulat  # type: ignore[attr-defined]  # noqa: B018


def test_import__of_sfnode_and_of_a_run__loads_neither_torch_nor_libp2p() -> None:
    program = (
        "import sys, sfnode; "
        "assert {name for name in sys.modules if name.startswith('sfnode')} == {'sfnode', 'sfnode.lazy_faces'}; "
        "sfnode.open_run; assert not {'torch', 'libp2p', 'trio'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert (done.returncode, done.stderr) == (0, "")
