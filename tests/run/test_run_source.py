"""Where a node finds its run's basis: what `sfnode init` wrote beside the run needs no option."""

from __future__ import annotations

import hashlib
import io
import shutil
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from protocol.run import CoreKind
from sfnode.reporter import Reporter
from sfnode.run import RunSource, find_basis
from sfnode.storage import DataDirectory, decode_run_file
from tests.support.cli_calls import call

DEMO = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews")


def find(run: Path, directory: Path) -> Path | None:
    directory.mkdir(exist_ok=True)
    manifest, source = decode_run_file(run).manifest, RunSource(run_file=run)
    return trio.run(find_basis, manifest, source, DataDirectory(directory), Reporter(stream=io.StringIO()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what init wrote."""
    folder = tmp_path_factory.mktemp("made")
    outcome = call("init", *DEMO, "--out", folder / "a.run")
    assert outcome.code == 0, outcome
    assert "the basis took 1,088 forward and 64 backward rows" in outcome.stdout
    assert f"--basis {folder / 'a.basis'}" in outcome.stdout
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """The file of a run, its basis beside it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a.run"


def test_find_basis__run_as_init_wrote_it__the_file_beside_it(run: Path, tmp_path: Path) -> None:
    found = find(run, tmp_path / "node")
    assert found is not None and found.parent == tmp_path / "node"
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    assert digest == decode_run_file(run).manifest.method.basis_sha256


def test_find_basis__held_already__is_written_again_only_where_it_differs(run: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    held = find(run, node)
    assert held is not None
    first = held.stat().st_ino  # whatever is written gets another one
    assert find(run, node) == held and held.stat().st_ino == first
    held.write_bytes(b"damaged")
    assert find(run, node) == held and held.read_bytes() == (tmp_path / "a.basis").read_bytes()


def test_find_basis__another_file_of_that_name__is_not_taken(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.basis").write_bytes(b"of another run")
    with pytest.raises(OperatorError, match="--basis"):
        find(run, tmp_path / "node")


def test_init__plain_or_own_method__makes_no_basis(tmp_path: Path) -> None:
    for number, options in enumerate((("--plain",), ("--rank", 8), ("--core", "canonical"))):
        run = tmp_path / f"{number}.run"
        outcome = call("init", *DEMO, *options, "--out", run)
        assert outcome.code == 0, outcome
        assert decode_run_file(run).manifest.method.basis_sha256 == "" and not run.with_suffix(".basis").exists()


def test_init__private_data_and_an_own_file__basis_from_that_file(tmp_path: Path) -> None:
    outcome = call("init", *DEMO, "--private-data", "--data", "embedded:reviews", "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    manifest = decode_run_file(tmp_path / "a.run").manifest
    assert (manifest.task.data, manifest.method.core) == ("private", CoreKind.DENSE)


def test_init__file_of_the_basis_is_there__says_so_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "a.basis").write_bytes(b"mine")
    outcome = call("init", *DEMO, "--out", tmp_path / "a.run")
    assert outcome.code == 1 and "a.basis exists" in outcome.stderr
    assert (tmp_path / "a.basis").read_bytes() == b"mine" and not (tmp_path / "a.run").exists()
