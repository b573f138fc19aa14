"""What an owner is told of the start that `sfnode init` and `sfnode basis make` have found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.subspace import Basis, Start
from sfnode.cli.new_run import describe_expectation, describe_start
from sfnode.demo import data_file
from sfnode.storage import decode_run_file, stored_bases
from sfnode.training.calibration import FoundBasis, Judged, RateTrial, RenewalTrial, sources
from sfnode.training.model import loading
from sfnode.training.task import PromptEncoder
from tests.support.cli_calls import call

DEMO = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews")
DRAWN = (*DEMO, "--directions", 4)  # an owner who says how directions are drawn has a run that draws them
BASES = (Basis(u=np.ones((4, 1), dtype=np.int8), v=None),)
ALONE = Judged(loss=1.2, accuracy=0.55)


def test_describe_start__a_start_that_helps__how_good_it_is_and_what_it_took() -> None:
    found = FoundBasis(bases=BASES, rows=1_056, of_start=Judged(loss=0.4, accuracy=0.8), of_model=ALONE)
    assert describe_start(found) == [
        "start    80% of held-back examples right before any training; the model alone 55%",
        "rows     the calibration took 1,056 forward rows; a backward pass counts as two",
    ]


def test_describe_start__none_that_helps__says_so() -> None:
    start, _ = describe_start(FoundBasis(bases=BASES, rows=64, of_model=ALONE))
    assert start == (
        "start    the start does not help on held-back examples; the run begins at the model as it is, "
        "55% of them right"
    )


def test_init__start_that_does_not_help__a_run_without_one_and_its_columns(tmp_path: Path) -> None:
    """Of each four examples that look alike, the one that is held back has another label."""
    rows = [
        {"sentence": sentence, "label": (label + (number % 4 == 3)) % 2}
        for label, sentence in enumerate(("a dull film", "a bright film"))
        for number in range(40)
    ]
    (tmp_path / "lies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    outcome = call("init", *DRAWN, "--data", tmp_path / "lies.jsonl", "--out", tmp_path / "a.run", "--json")
    told = json.loads(outcome.stdout)
    assert told["start_accuracy"] is None and 0 <= told["model_accuracy"] <= 1
    assert told["calibration_rows"] > len(rows)
    manifest = decode_run_file(tmp_path / "a.run").manifest
    bases = stored_bases.read_bases(manifest, tmp_path / "a.basis")
    assert manifest.method.start_rank == 0 and not bases.starts(0)
    assert any(bases.of(0, index).u.any() for index in range(len(manifest.tensors)))


def test_init__staleness__is_what_the_manifest_says(tmp_path: Path) -> None:
    given = ("init", *DEMO, "--data", data_file(split="train"), "--plain")
    for name, options, expected in (("a", (), 1), ("b", ("--staleness", 0), 0), ("c", ("--staleness", 64), 64)):
        assert call(*given, *options, "--out", tmp_path / f"{name}.run").code == 0
        assert decode_run_file(tmp_path / f"{name}.run").manifest.staleness == expected
    refused = call(*given, "--staleness", 65, "--out", tmp_path / "d.run")
    assert "staleness" in refused.error


def test_describe_start__completions__their_loss() -> None:
    """`sfnode init --task text` said nothing of what it had found."""
    texts = FoundBasis(
        bases=BASES, of_start=Judged(loss=4.452, accuracy=None), of_model=Judged(loss=5.77, accuracy=None)
    )
    assert describe_start(texts)[0] == (
        "start    loss 4.45 on held-back examples before any training; the model alone 5.77"
    )
    (none_helps, _) = describe_start(replace(texts, of_start=None))
    assert none_helps.endswith("the run begins at the model as it is, loss 5.77")


def test_describe_start__not_judged__the_rows_alone() -> None:
    (rows,) = describe_start(FoundBasis(bases=BASES, rows=2_880))
    assert "2,880 forward rows" in rows


STARTED = FoundBasis(bases=BASES, rows=950, start=Start(exp=0, products=(None,)))


def trial(
    rate: float = 0.004, *, after: float = 0.4, accuracies: tuple[float, float] | None = (0.81, 0.823)
) -> RateTrial:
    """Of 200 examples held back; the loss was 0.5 before, and a rise above 0.52 is no chance."""
    before, last = (None, None) if accuracies is None else accuracies
    return RateTrial(
        rate=rate,
        before=Judged(loss=0.5, accuracy=before),
        after=Judged(loss=after, accuracy=last),
        error=0.0268,
        step_rows=256,
        change=RenewalTrial(loss_before=0.5, loss_after=after, error=0.01, examples=200, authors=1, rows=656),
    )


def test_describe_expectation__a_start__what_it_has_and_what_some_steps_add() -> None:
    assert describe_expectation(STARTED, (trial(),)) == [
        "expects  81% right after 950 forward rows (the start), 82% after 256 more; measured on 200 held-back examples "
        "(standard error 2.7 points)"
    ]


def test_describe_expectation__no_start__what_the_steps_bring() -> None:
    (line,) = describe_expectation(FoundBasis(bases=BASES, rows=950), (trial(),))
    assert line.startswith("expects  81% right at the model as it is, 82% after 256 forward rows; measured on 200 ")


def test_describe_expectation__texts__losses() -> None:
    (line,) = describe_expectation(STARTED, (trial(accuracies=None),))
    assert line == (
        "expects  loss 0.50 after 950 forward rows (the start), 0.40 after 256 more; measured on 200 held-back "
        "examples (standard error 0.027)"
    )


def test_describe_expectation__rates_that_raise_the_loss__says_which_the_run_has() -> None:
    wild, still_wild = trial(after=0.6), trial(0.002, after=0.6)
    expected = {
        (trial(),): None,
        (wild, trial(0.002)): "rate     0.002, for 0.004 raised the loss by more than twice its standard error in",
        (wild, still_wild): "rate     0.002, the lowest of those tried, which all raised the loss by more than twice",
        (wild,): "rate     0.004, as given, raised the loss by more than twice its standard error in these steps: a",
    }
    for tried, said in expected.items():
        _, *rate = describe_expectation(STARTED, tried)
        assert [line[: len(said or "")] for line in rate] == ([] if said is None else [said])


def test_init__enough_data__says_what_to_expect_measured_on_examples_held_back(tmp_path: Path) -> None:
    outcome = call("init", *DRAWN, "--out", tmp_path / "a.run")
    assert (
        "expects  100% right after 950 forward rows (the start), 100% after 256 more; measured on 200" in outcome.stdout
    )


def test_init__rate_given_that_hurts__is_kept_and_said_to(tmp_path: Path) -> None:
    owner = tmp_path / "owner.key"  # the run's seeds follow from it: now and then a random one is lucky
    owner.write_text("07" * 32 + "\n")
    owner.chmod(0o600)
    given = ("--learning-rate", 1, "--owner-key", owner, "--out", tmp_path / "a.run")
    expected = json.loads(call("init", *DRAWN, *given, "--json").stdout)["expected"]
    assert expected["raises_loss"] and expected["after"]["loss"] > expected["start"]["loss"] + 0.1
    assert expected["learning_rates_tried"] == [expected["learning_rate"]] == [1.0]
    assert (expected["rows"], expected["held_back_examples"]) == (256, 200)
    assert rate_of(tmp_path / "a.run") == pytest.approx(1.0, rel=0.05)


def test_init__suggested_rate_hurts__the_run_has_the_one_that_was_tried_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def tried(_described: object, _rows: int, _bases_at: object, rates: tuple[float, ...], _tell: object) -> object:
        asked.extend(rates)
        return tuple(trial(rate, after=0.6) for rate in rates)

    monkeypatch.setattr(sources, "try_described", tried)
    outcome = call("init", *DRAWN, "--out", tmp_path / "a.run")
    first, second = asked
    assert first == 2 * second and f"rate     {second:.2g}, the lowest of those tried" in outcome.stdout
    assert rate_of(tmp_path / "a.run") == pytest.approx(second, rel=0.05)


def rate_of(run: Path) -> float:
    """The first step's, as --learning-rate takes it: 32 / rms g, and the mean over the directions."""
    manifest = decode_run_file(run).manifest
    return 2.0**manifest.method.alpha_exp * manifest.weight(0) * 32 * manifest.method.directions


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_init__few_data_or_plain__nothing_is_tried(options: tuple[str, ...], tmp_path: Path) -> None:
    lines = data_file(split="train").read_text("utf-8").splitlines()[:40]
    (tmp_path / "some.jsonl").write_text("\n".join(lines), "utf-8")
    given = ("init", *DEMO, "--data", tmp_path / "some.jsonl", *options)
    assert json.loads(call(*given, "--out", tmp_path / "a.run", "--json").stdout)["expected"] is None
    assert "expects" not in call(*given, "--out", tmp_path / "b.run").stdout


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_init__with_and_without_a_start__reads_model_and_data_once(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describing the model, trying the task, and calibrating use the same model and the same tokens."""
    loads, rows = counted(monkeypatch, loading, "_unread"), counted(monkeypatch, PromptEncoder, "encode")
    lines = data_file(split="train").read_text("utf-8").splitlines()[:40]
    (tmp_path / "some.jsonl").write_text("\n".join(lines), "utf-8")
    outcome = call("init", *DEMO, "--data", tmp_path / "some.jsonl", *options, "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert (len(loads), len(rows)) == (1, len(lines))


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[None]:
    """Grows by one with each call of that function."""
    calls: list[None] = []
    real: Callable[..., object] = getattr(owner, name)

    def noted(*arguments: object) -> object:
        calls.append(None)
        return real(*arguments)

    monkeypatch.setattr(owner, name, noted)
    return calls


@pytest.mark.parametrize(("rows", "is_dense"), [(31, False), (32, True)])
def test_init__few_examples__say_too_little_for_a_dense_core(rows: int, is_dense: bool, tmp_path: Path) -> None:
    lines = data_file(split="train").read_text("utf-8").splitlines()[:rows]
    (tmp_path / "some.jsonl").write_text("\n".join(lines), "utf-8")
    outcome = call("init", *DEMO, "--data", tmp_path / "some.jsonl", "--out", tmp_path / "a.run")
    assert outcome.code == 0, outcome
    assert decode_run_file(tmp_path / "a.run").manifest.method.is_dense == is_dense
    asked = call("init", *DEMO, "--data", tmp_path / "some.jsonl", "--core", "dense", "--out", tmp_path / "b.run")
    assert (asked.code == 0) == is_dense and is_dense != ("--core dense: needs" in asked.stderr)
