"""``sfnode eval --compare``: the model alone, the run, and the node's own examples alone; what is kept of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import SignedManifest, sign_manifest
from protocol.run.task import DATA_PRIVATE
from sfnode.demo import data_file
from sfnode.run.node_toml import write_node_file
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import demo_run
from tests.support.manifests import OWNER

STEPS = 6
ALICE = Signer(b"alice".ljust(32, b"."))


def of_private_data(signed: SignedManifest) -> SignedManifest:
    task = replace(signed.manifest.task, data=DATA_PRIVATE, data_sha256="")
    return sign_manifest(replace(signed.manifest, task=task), OWNER)


def held_in(folder: Path, signed: SignedManifest) -> DataDirectory:
    """The directory of a node that has stopped after a few steps."""
    codec, node = EnvelopeCodec(signed.manifest), DataDirectory(folder)
    store = Store(node, signed)
    scalars = (1,) * signed.manifest.method.directions
    store.add([codec.seal(ALICE, step, scalars).record for step in range(STEPS)], is_durable=True)
    store.close()
    return node


def some_of(split: str, count: int, path: Path) -> Path:
    """A file with the first rows of the demo."""
    path.write_text("\n".join(data_file(split=split).read_text("utf-8").split("\n")[:count]), "utf-8")
    return path


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    return some_of("eval", 32, tmp_path / "held-out.jsonl")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return some_of("train", 32, tmp_path / "own.jsonl")


@pytest.fixture
def private(tmp_path: Path) -> DataDirectory:
    return held_in(tmp_path / "node", of_private_data(demo_run(steps=40)))


def compared(node: DataDirectory, held_out: Path, *options: object) -> dict[str, Any]:
    outcome = call("eval", "--data-dir", node, "--eval-data", held_out, "--compare", "--json", *options)
    # A busy machine shows progress.
    said = [line for line in outcome.stderr.splitlines() if json.loads(line)["event"] != "working"]
    assert (outcome.code, said) == (0, []), outcome
    told: dict[str, Any] = json.loads(outcome.stdout)
    return told


def test_eval_compare__own_examples__are_measured_and_all_of_it_is_kept(
    private: DataDirectory, held_out: Path, own: Path
) -> None:
    told = compared(private, held_out, "--data", own)
    assert list(told) == ["before", "after", "own", "step", "state_digest"]
    assert len({each["loss"] for each in (told["before"], told["after"], told["own"])}) == 3
    gain = private.gain.read()
    assert gain is not None and gain.own is not None
    for kept, shown, step in (
        (gain.before, told["before"], 0),
        (gain.own, told["own"], 6),
        (gain.after, told["after"], 6),
    ):
        assert (kept.loss, kept.accuracy, kept.rows, kept.step) == (shown["loss"], shown["accuracy"], 32, step)
    assert compared(private, held_out, "--data", own) == told


def test_eval_compare__at_a_step__own_examples_have_as_many(private: DataDirectory, held_out: Path, own: Path) -> None:
    told = compared(private, held_out, "--data", own, "--at-step", 0)
    assert told["own"] == told["before"] == told["after"]
    gain = private.gain.read()
    assert gain is not None and gain.after.step == 0
    shown = call("eval", "--data-dir", private, "--eval-data", held_out, "--at-step", 3)
    assert shown.stdout.startswith("the run, step 3 ") and "the run now" not in shown.stdout, "it is not what it is now"


def test_eval_compare__data_that_the_node_remembers__are_taken_while_they_are_there(
    private: DataDirectory, held_out: Path, own: Path
) -> None:
    write_node_file(private, {"data": str(own), "eval-data": str(held_out)})
    text = call("eval", "--data-dir", private, "--compare").stdout
    names = ["the model alone", "the run now", "own data alone"]
    lines = text.splitlines()
    assert [line[:15].rstrip() for line in lines if ", 32 rows" in line] == names
    assert [line.split(":")[0].strip()[:15].rstrip() for line in lines[2:11]] == ["prompt", *names[:2]] * 3
    assert "(right: " in lines[2] and lines[3].split()[-1] in ("no", "yes")
    assert text.count(", 32 rows\n") == 3
    own.unlink()
    assert "own" not in compared(private, held_out)
    gain = private.gain.read()
    assert gain is not None and gain.own is None
    held_out.unlink()
    assert_teaches(call("eval", "--data-dir", private, "--compare"), "--eval-data is missing")


def test_eval_compare__public_data_of_the_package__need_not_be_named(tmp_path: Path, held_out: Path) -> None:
    assert "own" in compared(held_in(tmp_path / "node", demo_run(steps=40)), held_out)


def test_eval__one_model__keeps_nothing_and_takes_no_examples_to_train_on(
    private: DataDirectory, held_out: Path, own: Path
) -> None:
    alone = ("eval", "--data-dir", private, "--eval-data", held_out)
    assert call(*alone).stdout.startswith("the run now     accuracy ")
    assert private.gain.read() is None
    assert_teaches(call(*alone, "--data", own), "--data", "add --compare")


def test_eval_compare__examples_that_are_not_there__are_named_before_anything_is_measured(
    private: DataDirectory, held_out: Path, tmp_path: Path
) -> None:
    outcome = call("eval", "--data-dir", private, "--eval-data", held_out, "--compare", "--data", tmp_path / "no.jsonl")
    assert_teaches(outcome, str(tmp_path / "no.jsonl"))
    assert outcome.stdout == ""


def test_eval_compare__result_cannot_be_kept__is_shown_with_a_warning(private: DataDirectory, held_out: Path) -> None:
    (private.path / "gain.json").mkdir()
    outcome = call("eval", "--data-dir", private, "--eval-data", held_out, "--compare")
    assert outcome.code == 0 and outcome.stdout.startswith("the model alone accuracy ")
    assert outcome.stderr.startswith(f"Warning: cannot write {private.path / 'gain.json'}")


def test_run_show__compared_before__says_what_the_run_has_given(
    private: DataDirectory, held_out: Path, own: Path
) -> None:
    unmeasured = call("run", "show", private).stdout.splitlines()[-2:]
    assert unmeasured == [
        "learns   to answer no or yes to: {sentence} It was",
        "gain     `sfnode eval --compare` measures the model alone, the run now and own data alone",
    ]
    told = compared(private, held_out, "--data", own)
    after, before, alone = (f"{100 * told[name]['accuracy']:.1f} %" for name in ("after", "before", "own"))
    assert call("run", "show", private).stdout.endswith(
        f"\ngain     the model alone {before}, the run now {after}, own data alone {alone} (32 held-out rows, step 6)\n"
    )
    last = json.loads(call("run", "show", private, "--json").stdout)["gain"]
    assert (last["kind"], last["own"]["accuracy"], last["after"]["step"]) == ("gain", told["own"]["accuracy"], 6)
    (private.path / "gain.json").write_text("{", "utf-8")
    assert_teaches(call("run", "show", private), "gain.json is damaged. Remove it")
