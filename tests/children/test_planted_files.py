"""Nothing in the current folder is run by a child: a cloned model may hold a `numpy.py` with anything in it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from sfnode.children.child_program import Program
from sfnode.node.model_finder import resolve_apart
from sfnode.worker.supervisor import worker_process
from tests.repository.architecture import Module, dotted, read_modules

# Each child with arguments with which it ends soon, after all its imports. A new child gets its row.
CHILDREN: dict[str, tuple[str, ...]] = {
    "pip": ("--version",),
    "sfnode": ("join", "--help"),  # the nodes of a test network
    "sfnode.model_files.resolve_process": ("embedded:tiny-opt",),
    "sfnode.training": ("--help",),
    "sfnode.training.bench.peak_memory": (),
    "sfnode.training.chat": ("1", os.devnull),
    "sfnode.training.conversion.process": ("--help",),
    "sfnode.training.devices": (),
    "sfnode.training.token_check": ("nowhere", "{}"),
}
# What children import, of ours, of others and of Python's own.
PLANTED = "numpy torch trio transformers safetensors msgpack nacl click psutil pip sfnode protocol json runpy argparse"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a planted module makes when it is run from the current folder."""
    mark = tmp_path / "planted-code-ran"
    folder = tmp_path / "cloned-model"
    folder.mkdir()
    for name in PLANTED.split():
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__file__ + chr(10))\n")
    monkeypatch.chdir(folder)
    # `export PYTHONPATH=$PYTHONPATH:/x` makes an empty entry, which Python takes for the current folder.
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return mark


# All start in one way; those that import torch for the same end take part in `make test-all` only.
SLOW = {
    "sfnode.training",
    "sfnode.training.bench.peak_memory",
    "sfnode.training.conversion.process",
    "sfnode.training.devices",
    "sfnode.training.token_check",
}


@pytest.mark.process
@pytest.mark.parametrize(
    "module", [pytest.param(module, marks=pytest.mark.slow) if module in SLOW else module for module in CHILDREN]
)
def test_child__planted_modules_in_the_current_folder__are_not_run(module: str, planted: Path) -> None:
    done = Program(module=module, arguments=CHILDREN[module]).run(100.0)
    assert not planted.exists(), planted.read_text()
    assert "No module named" not in done.stderr, done.stderr


@pytest.mark.process
def test_child__without_the_safe_path__would_run_them(planted: Path) -> None:
    """The plants of this file do work."""
    command = [part for part in Program(module="sfnode.training.devices").command if part != "-P"]
    subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, check=False, timeout=100)
    assert planted.exists()


@pytest.mark.process
async def test_children__started_as_a_node_starts_them__run_no_planted_module(planted: Path) -> None:
    with trio.fail_after(100.0):
        await resolve_apart("embedded:tiny-opt", "", lambda *_row: None)
        async with worker_process(threads=1) as socket:
            assert socket.exists()
    assert not planted.exists(), planted.read_text()


@pytest.mark.process
def test_child__that_starts_python_in_turn__hands_the_safe_path_down(planted: Path) -> None:
    command = ["-m", "sfnode.model_files.resolve_process", *CHILDREN["sfnode.model_files.resolve_process"]]
    text = f"import subprocess, sys; subprocess.run([sys.executable, *{command}])"
    (planted.parent / "grandparent.py").write_text(text)
    Program(module="grandparent", variables={"PYTHONPATH": str(planted.parent)}).run(100.0)
    assert not planted.exists(), planted.read_text()


@pytest.mark.process
@pytest.mark.parametrize("start", [("-m", "sfnode"), ("-P", "-m", "sfnode")], ids=" ".join)
def test_sfnode__started_by_hand_in_a_folder_with_planted_modules__runs_none(
    start: tuple[str, ...], planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for `sfnode` itself in the current folder first; what sfnode imports then is not there."""
    (Path.cwd() / "sfnode.py").unlink()
    (Path.cwd() / "runpy.py").unlink()
    monkeypatch.delenv("PYTHONPATH")
    command = [sys.executable, *start, "join", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert not planted.exists(), planted.read_text()


def test_children__every_module_that_is_started__has_its_row_here() -> None:
    started = {name for module in read_modules("sfnode") for name in _started_in(module)}
    assert started == set(CHILDREN)


def _started_in(module: Module) -> Iterator[str]:
    """What `Program(module=...)` names in a module."""
    constants = {"__name__": module.name}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            constants |= {dotted(target): str(node.value.value) for target in targets}
    constants["self.module"] = constants.get("module", "")  # the default of a field
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "Program":
            (named,) = (keyword.value for keyword in node.keywords if keyword.arg == "module")
            yield str(named.value) if isinstance(named, ast.Constant) else constants[dotted(named)]
