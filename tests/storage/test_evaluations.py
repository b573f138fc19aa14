"""The model at any step from the log alone; what was measured on held-out data, and when the run gets worse."""

from __future__ import annotations

import io
import json
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.ledger import EnvelopeCodec, Roster, StatementCodec
from protocol.run import sign_manifest
from protocol.state import Coefficients
from sfnode.api.runs import open_run
from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.reporter import Reporter
from sfnode.storage import EvaluatedStep, Gain, Store, evaluations
from sfnode.storage.data_directory import DataDirectory
from tests.support.manifests import OWNER, small_manifest

SIGNED = sign_manifest(small_manifest(), OWNER)
ROSTER = Roster(SIGNED.manifest)  # which says nothing
ALICE, BOB = (Signer(name.ljust(32, b".")) for name in (b"alice", b"bob"))


def of_losses(*losses: float) -> list[EvaluatedStep]:
    """Every ten steps."""
    return [EvaluatedStep(step=10 * number, accuracy=0.5, loss=loss, rows=100) for number, loss in enumerate(losses)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a node that has stopped: two authors, ten steps each."""
    store = Store(DataDirectory(tmp_path), SIGNED)
    codec = EnvelopeCodec(SIGNED.manifest)
    store.add(
        [codec.seal(who, step, (step - 4,)).record for step in range(10) for who in (ALICE, BOB)], is_durable=True
    )
    store.close()
    return tmp_path


@pytest.mark.parametrize("steps", [0, 1, 6, 10])
def test_read_state__at_a_step__is_what_the_updates_before_it_add_up_to(steps: int, directory: Path) -> None:
    codec = EnvelopeCodec(SIGNED.manifest)
    expected = Coefficients(SIGNED.manifest)
    expected.add(
        codec.decode_untrusted(codec.seal(who, step, (step - 4,)).record)
        for step in range(min(steps, 10))
        for who in (ALICE, BOB)
    )
    assert open_run(directory).state(steps).coefficients.digest() == expected.digest()
    is_all = open_run(directory).state().coefficients.digest() == expected.digest()
    assert is_all == (steps >= 10)


def test_read_state__at_the_best_step__is_the_one_of_least_loss(directory: Path) -> None:
    measured = [
        EvaluatedStep(step=step, accuracy=0.9, loss=loss, rows=9) for step, loss in ((2, 0.7), (5, 0.4), (9, 0.6))
    ]
    data_dir = DataDirectory(directory)
    data_dir.evaluations.write(measured)
    best, fifth = (open_run(directory).state(step).coefficients for step in (evaluations.BEST_STEP, 5))
    assert best.digest() == fifth.digest()


def exclusion(who: Signer, from_step: int) -> bytes:
    return StatementCodec(SIGNED.manifest).exclude(OWNER, who.author, from_step)


def arrive(directory: Path, *statements: bytes) -> None:
    """Statements reach the node."""
    with closing(Store(DataDirectory(directory), SIGNED)) as store:
        store.add_statements(statements)


def measured(removed: str = "", **losses: float) -> list[EvaluatedStep]:
    """Losses by step, as ``at_5=0.4``."""
    found = [(int(name.removeprefix("at_")), loss) for name, loss in losses.items()]
    return [EvaluatedStep(step=step, accuracy=0.9, loss=loss, rows=9, removed=removed) for step, loss in found]


def test_read_state__best_step_was_measured_with_an_author_who_is_excluded_now__is_another(directory: Path) -> None:
    """A fault once: `--at-step best` named a step for the figure of a model that was no more, the cheat's."""
    held = DataDirectory(directory).evaluations
    held.write(measured(at_0=0.8, at_3=0.7, at_5=0.4))
    arrive(directory, exclusion(BOB, 3))
    state = open_run(directory).state(evaluations.BEST_STEP)
    assert state.steps == 3, "the model of the steps before the third is what it was"
    now = evaluations.removed_before(state.roster.removals(), 6)
    held.write([*held.read(), *measured(now, at_6=0.5)])
    assert open_run(directory).state(evaluations.BEST_STEP).steps == 6, "it was measured without him"
    arrive(directory, exclusion(ALICE, 9))
    assert open_run(directory).state(evaluations.BEST_STEP).steps == 6, "what goes later was not in it"
    arrive(directory, exclusion(BOB, 2))
    with pytest.raises(OperatorError, match=r"this node measured nothing on .*, of the model as it is since an excl"):
        open_run(directory).state(evaluations.BEST_STEP)  # the model alone is all that still stands
    assert [each.step for each in held.read()] == [0, 3, 5, 6], "all of them stay in the file"


def test_gain__measured_with_an_author_who_is_excluded_now__does_not_stand(directory: Path) -> None:
    kept, (before, after) = DataDirectory(directory).gain, measured(at_0=0.8, at_5=0.4)
    kept.write(Gain(before=before, own=None, after=after))
    for from_step, is_standing in ((5, True), (4, False)):
        arrive(directory, exclusion(BOB, from_step))
        assert (kept.standing(open_run(directory).state().roster) is not None) == is_standing


def test_curve__author_is_excluded__skips_and_keeps_what_was_measured_with_them_and_says_so_once(
    tmp_path: Path,
) -> None:
    said, roster, directory = io.StringIO(), Roster(SIGNED.manifest), DataDirectory(tmp_path)
    curve = LearningCurve(directory, Reporter(is_json=False, stream=said), roster)
    curve.take(measured(at_0=0.8, at_3=0.7, at_5=0.1, at_6=0.2))
    roster.add(exclusion(BOB, 3))
    for _ in range(2):
        shown = curve.statistics()
        assert [each.step for each in shown.evaluations] == [0, 3]
        assert shown.best is not None and shown.gain is not None and shown.best.step == shown.gain.after.step == 3
    told = "the model is another one since an exclusion: 2 results on held-out data no longer count\n"
    assert said.getvalue() == told
    now = evaluations.removed_before(roster.removals(), 6)
    curve.take(measured(now, at_6=0.6, at_8=0.65))
    assert [each.step for each in curve.statistics().evaluations] == [0, 3, 6, 8] and said.getvalue() == told
    assert [each.loss for each in directory.evaluations.read()] == [0.8, 0.7, 0.1, 0.6, 0.65]
    curve.take(measured(now, at_9=0.9, at_10=0.9, at_11=0.9))
    assert "has risen from 0.600 at step 6 to 0.900" in said.getvalue(), "not from what is stale"


def test_read_state__best_step_of_a_node_that_measured_nothing__says_what_to_do(directory: Path) -> None:
    with pytest.raises(OperatorError, match=r"no best step is known, because .* Give the number"):
        open_run(directory).state(evaluations.BEST_STEP)


ENDLESS = '[{"step": 1e999, "accuracy": 1, "loss": 1, "rows": 1}]'


@pytest.mark.parametrize("content", ["[1]", '[{"step": 1}]', "{", '"best"', "[" * 9_999, ENDLESS])
def test_read_evaluations__damaged_file__is_named_with_a_way_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "evaluations.json").write_text(content, "utf-8")
    with pytest.raises(OperatorError, match=r"evaluations.json is damaged. Remove it"):
        DataDirectory(tmp_path).evaluations.read()


GAIN = Gain(before=of_losses(0.7)[0], own=None, after=of_losses(0.7, 0.5)[1])
WITHOUT_OWN = '{"before": {"step": 0, "accuracy": 0.5, "loss": 0.7, "rows": 9}, "after": null}'


def test_gain__kept__is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = DataDirectory(tmp_path).gain
    assert kept.read() is None
    for gain in (GAIN, Gain(before=GAIN.before, own=GAIN.after, after=GAIN.after)):
        kept.write(gain)
        assert kept.read() == gain


@pytest.mark.parametrize("content", ["", "{", "null", "[1, 2, 3]", "[" * 9_999, WITHOUT_OWN])
def test_read_gain__damaged_file__is_named_with_a_way_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "gain.json").write_text(content, "utf-8")
    with pytest.raises(OperatorError, match=r"gain.json is damaged. Remove it"):
        DataDirectory(tmp_path).gain.read()


def test_gain_of__first_evaluation__counts_if_it_is_of_the_model_alone() -> None:
    assert evaluations.gain_of(of_losses(0.7, 0.6, 0.5)[:2]) == Gain(
        before=of_losses(0.7)[0], own=None, after=of_losses(0.7, 0.6)[1]
    )
    assert evaluations.gain_of(of_losses(0.7, 0.6)[1:]) is evaluations.gain_of([]) is None


def test_curve__run_unlearns__is_said_once_with_the_command_that_helps_and_outlives_a_restart(tmp_path: Path) -> None:
    said = io.StringIO()
    curve = LearningCurve(DataDirectory(tmp_path), Reporter(is_json=False, stream=said), ROSTER)
    curve.take(of_losses(0.7, 0.4, 0.5, 0.5, 0.5, 0.6))
    assert said.getvalue() == (
        "the loss on held-out data has risen from 0.400 at step 10 to 0.500. The model of that step can still be had: "
        f"sfnode export --data-dir {tmp_path} --at-step 10 --out FOLDER\n"
    )
    again = LearningCurve(DataDirectory(tmp_path), Reporter(is_json=False, stream=said), ROSTER)
    best = evaluations.best_of(again.evaluations)
    assert best is not None and best.step == 10 and len(again.evaluations) == 6
    again.take([EvaluatedStep(step=10, accuracy=0.5, loss=0.9, rows=100)])  # measured again: the newer one counts
    assert [each.loss for each in DataDirectory(tmp_path).evaluations.read()] == [0.7, 0.9, 0.5, 0.5, 0.5, 0.6]


def test_curve__damaged_file__is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "evaluations.json").write_text("{", "utf-8")
    said = io.StringIO()
    curve = LearningCurve(DataDirectory(tmp_path), Reporter(is_json=False, stream=said), ROSTER)
    assert "evaluations.json is damaged. Remove it: only the best step" in said.getvalue()
    curve.take(of_losses(0.5))
    assert json.loads((tmp_path / "evaluations.json").read_text("utf-8"))[0]["loss"] == 0.5


def test_curve__file_cannot_be_written__is_said_and_stops_nothing(tmp_path: Path) -> None:
    said = io.StringIO()
    curve = LearningCurve(DataDirectory(tmp_path / "file" / "node"), Reporter(is_json=False, stream=said), ROSTER)
    (tmp_path / "file").write_text("", "utf-8")
    curve.take(of_losses(0.5))
    assert "cannot write" in said.getvalue() and len(curve.evaluations) == 1


def test_curve__gain__is_what_was_measured_last_or_else_since_the_first_evaluation(tmp_path: Path) -> None:
    said = io.StringIO()
    curve = LearningCurve(DataDirectory(tmp_path), Reporter(is_json=False, stream=said), ROSTER)
    assert curve.statistics().gain is None
    curve.take(of_losses(0.7, 0.6, 0.5))
    since_start = Gain(before=of_losses(0.7)[0], own=None, after=of_losses(0.7, 0.6, 0.5)[2])
    assert curve.statistics().gain == since_start
    DataDirectory(tmp_path).gain.write(GAIN)
    assert curve.statistics().gain == GAIN
    assert said.getvalue() == ""
    (tmp_path / "gain.json").write_text("{", "utf-8")
    assert [curve.statistics().gain for _ in range(3)] == [since_start] * 3
    assert said.getvalue().count("gain.json is damaged. Remove it: `sfnode eval --compare` writes it anew") == 1


def test_curve__many_evaluations__keeps_the_first_the_best_the_newest_and_some_evenly_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: the file grew for ever, and was written whole at each of them."""
    monkeypatch.setattr(evaluations, "_KEPT_MAX", 32)
    curve = LearningCurve(DataDirectory(tmp_path), Reporter(stream=io.StringIO()), ROSTER)
    taken = of_losses(*(0.3 if number == 77 else 0.7 - number / 1_000 for number in range(301)))
    for each in taken:
        curve.take([each])
        assert len(curve.evaluations) <= 32
    kept = DataDirectory(tmp_path).evaluations.read()
    assert kept == curve.evaluations
    assert (kept[0], kept[-8:]) == (taken[0], taken[-8:])
    assert evaluations.best_of(kept) == curve.statistics().best == taken[77]
    gaps = [after.step - before.step for before, after in pairwise(kept)]
    assert len(kept) >= 16 and max(gaps) <= 256 + 10  # parts of 256 steps
