"""``sfnode basis make`` and ``sfnode init --basis``: what they write fits together, and mistakes are named."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest

from protocol.ledger.statements import StatementCodec
from protocol.run.method import BasisKind, CoreKind, ScalarKind
from protocol.subspace.basis_file import decode_basis_untrusted, shape_of_basis
from sfnode.storage.data_directory import DataDirectory, decode_run_file
from sfnode.storage.key_file import KeyFile
from sfnode.storage.store import Store
from sfnode.storage.stored_bases import read_bases
from sfnode.training.calibration import sources
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
    assert_teaches(call(*MAKE, "--out", made), "exists", "never overwritten")
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


# --- renewals of a run with a start


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's directory and its owner's key, of a run with a start of rank 1 in which nobody has trained yet."""
    folder = tmp_path_factory.mktemp("started")
    made = ("basis", "make", *DEMO, "--data", "embedded:reviews", "--examples", 32, "--source", "forward")
    assert call(*made, "--out", folder / "first.basis").code == 0
    keys = ("--owner-key", folder / "owner.key")
    outcome = call("init", *DEMO, *keys, "--basis", folder / "first.basis", "--steps", 5_000, "--out", folder / "a.run")
    assert outcome.code == 0, outcome
    signed = decode_run_file(folder / "a.run")
    Store(DataDirectory(folder / "node"), signed).close()
    DataDirectory(folder / "node").bases.store(signed.manifest, (folder / "first.basis").read_bytes(), origin="test")
    return folder


def test_basis_offer__run_with_a_start__holds_a_further_one_and_the_owner_publishes_it(
    started: Path, tmp_path: Path
) -> None:
    node, given = ("--data-dir", started / "node"), ("--data", "embedded:reviews", "--json")
    offered = call("basis", "offer", *node, *given, "--examples", 64, "--out", tmp_path / "better.basis")
    assert offered.code == 0, offered
    told = json.loads(offered.stdout)
    assert told["has_start"] and told["trial"]["loss_after"] < told["trial"]["loss_before"]
    outcome = call(
        "basis", "renew", *node, *given, "--owner-key", started / "owner.key", "--basis", tmp_path / "better.basis"
    )
    assert outcome.code == 0, outcome
    published = json.loads(outcome.stdout)
    assert (published["sha256"], published["has_start"], published["from_epoch"]) == (told["sha256"], True, 2)
    manifest = decode_run_file(started / "a.run").manifest
    renewals = DataDirectory(started / "node").bases.renewals(manifest, {2: told["sha256"]})
    bases = read_bases(manifest, DataDirectory(started / "node").bases.first(manifest), renewals)
    own = manifest.method.basis_sha256
    assert [list(bases.starts(epoch)) for epoch in (1, 2)] == [[own], [own, told["sha256"]]]


def test_basis_offer__source_without_a_start__says_that_it_holds_none(
    started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether eight steps on a model that is all right raise its loss depends on their draw: the trial has its own tests
    monkeypatch.setattr(sources, "try_renewal", lambda *_: None)
    given = ("--data-dir", started / "node", "--data", "embedded:reviews", "--examples", 32, "--source", "gradient")
    outcome = call("basis", "offer", *given, "--from-epoch", 1, "--out", tmp_path / "plain.basis")
    assert outcome.code == 0, outcome
    assert "start    none: it would not lower the loss" in outcome.stdout
    assert shape_of_basis((tmp_path / "plain.basis").read_bytes()).start_rank == 1


def test_basis_renew__earlier_renewal_is_not_here__says_to_start_the_node(started: Path, tmp_path: Path) -> None:
    """What comes after it is added to weights that have its start."""
    signed = decode_run_file(started / "a.run")
    statement = StatementCodec(signed.manifest).renew(KeyFile(started / "owner.key").signer(), 2, "ab" * 32)
    with closing(Store(DataDirectory(tmp_path / "node"), signed)) as store:
        store.add_statements([statement])
    first = (started / "first.basis").read_bytes()
    DataDirectory(tmp_path / "node").bases.store(signed.manifest, first, origin="test")
    given = ("--data-dir", tmp_path / "node", "--data", "embedded:reviews", "--out", tmp_path / "x.basis")
    assert_teaches(call("basis", "offer", *given), "the basis from epoch 2 on is not here yet", "start the node")
    assert call("basis", "offer", *given, "--from-epoch", 1, "--examples", 32).code == 0
