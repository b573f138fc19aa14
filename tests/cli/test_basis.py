"""``sfnode basis make`` and ``sfnode init --basis``: what they write fits together, and mistakes are named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from protocol.run.method import BasisKind, CoreKind, ScalarKind
from protocol.subspace.basis_file import decode_basis_untrusted, shape_of_basis
from sfnode.storage.store import decode_run_file
from tests.support.cli_calls import assert_teaches, call

DEMO = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews")
GRADIENT = ("--source", "gradient", "--rank", 8)
MAKE = ("basis", "make", *DEMO, "--data", "embedded:reviews", "--examples", 32, *GRADIENT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A basis of the embedded model's linear layers, from a gradient."""
    out = tmp_path_factory.mktemp("basis") / "demo.basis"
    assert call(*MAKE, "--out", out).code == 0
    return out


def test_basis_make__then_init__a_run_that_names_the_file(made: Path, tmp_path: Path) -> None:
    outcome = call("init", *DEMO, "--basis", made, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert f"join --run {tmp_path / 'a.run'} --basis {made}" in outcome.stdout
    manifest = decode_run_file(tmp_path / "a.run").manifest
    method = manifest.method
    assert (method.basis, method.rank) == (BasisKind.PUBLISHED, 8)
    assert method.basis_sha256 == hashlib.sha256(made.read_bytes()).hexdigest()
    assert (method.core, method.scalar) == (CoreKind.RADEMACHER, ScalarKind.NORMALISED)  # what learns best with one
    assert len(decode_basis_untrusted(manifest, made.read_bytes()).bases) == len(manifest.tensors)


def test_init__basis_and_own_choices__are_kept(made: Path, tmp_path: Path) -> None:
    chosen = ("--core", "canonical", "--scalar", "raw", "--sides", 1, "--shares", 4)
    assert call("init", *DEMO, "--basis", made, *chosen, "--out", tmp_path / "a.run").code == 0
    method = decode_run_file(tmp_path / "a.run").manifest.method
    assert (method.core, method.scalar) == (CoreKind.CANONICAL, ScalarKind.RAW)
    assert (method.sides, method.shares, method.blocks) == (1, 4, 2)


def test_basis_make__same_choices_twice__same_bytes(made: Path, tmp_path: Path) -> None:
    outcome = call(*MAKE, "--out", tmp_path / "again.basis", "--json")
    assert json.loads(outcome.stdout)["sha256"] == hashlib.sha256(made.read_bytes()).hexdigest()


def test_basis_make__forward_passes_only__another_basis(made: Path, tmp_path: Path) -> None:
    outcome = call(*MAKE, "--source", "forward", "--out", tmp_path / "forward.basis")
    assert outcome.code == 0, outcome
    found = shape_of_basis((tmp_path / "forward.basis").read_bytes())
    assert (found.rank, found.start_rank) == (8, 1) and shape_of_basis(made.read_bytes()).start_rank == 0


def test_basis_make__mistakes__say_what_to_do(made: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.basis")
    assert_teaches(call(*MAKE, "--out", made), "exists", "choose another --out")
    assert_teaches(call(*MAKE, *out, "--rank", 12), "--rank 12", "power of two")
    assert_teaches(call(*MAKE, *out, "--trainable", "heads"), "--trainable 'heads'", "linear")
    several = ("--labels", " no, extraordinarily", "--source", "forward")
    assert_teaches(call(*MAKE, *out, *several), "--source forward", "--source trajectory")


def test_init__basis_that_does_not_fit__says_what_to_do(made: Path, tmp_path: Path) -> None:
    run = ("init", *DEMO, "--out", tmp_path / "x.run")
    assert_teaches(call(*run, "--basis", made, "--rank", 16), "--rank 16", "has rank 8")
    assert_teaches(call(*run, "--basis", made, "--trainable", "linear,norm"), "is not the run's basis", "shapes")
    (tmp_path / "junk").write_bytes(b"no basis")
    assert_teaches(call(*run, "--basis", tmp_path / "junk"), "not a basis file", "`sfnode basis make`")
    assert_teaches(call(*run, "--basis", tmp_path / "none"), "cannot read the basis")
