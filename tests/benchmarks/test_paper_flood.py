"""SeedFlood in worlds of its own: where nothing is late or uneven it is the run of the learning benchmark."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.learn.comparison import Compared
from benchmarks.learn.curves import Job, Point, play
from benchmarks.learn.problems import TASKS, Folders
from benchmarks.learn.trials import NetworkTrial
from benchmarks.paper.conditions import BASE, PARTS, kept_rate, main, read_conditions, write
from benchmarks.paper.flooding import CAUGHT_UP, FloodTrial, play_flood
from benchmarks.paper.worlds import dealt, delays
from protocol.errors import OperatorError

pytest_plugins = ("tests.benchmarks.played_folders",)
TASK = replace(TASKS["sst2"], test_rows=24)
PLAIN = NetworkTrial(
    steps=4, tune_steps=1, rates=(1e-2,), rows=4, rank=4, core="canonical", scalar="raw", directions=1,
    schedule="constant", clients=5, epoch_steps=2,
)  # fmt: skip
FLOOD = FloodTrial(**asdict(PLAIN))


@cache  # seven comparisons are with FLOOD itself
def curve(recipe: FloodTrial, folders: Folders) -> list[Point]:
    return play_flood(_job(recipe), folders)


def _job(recipe: NetworkTrial) -> Job:
    return Job(task=TASK, name="any", recipe=recipe, rate=1e-2, seed=0, is_test=True, evaluated_at=(0, 1, 2, 3))


def test_flood__nothing_late_or_uneven__is_the_run_of_the_learning_benchmark(folders: Folders) -> None:
    expected = play(_job(PLAIN), folders)
    assert curve(FLOOD, folders) == expected
    assert len({point.loss for point in expected}) == 5


@pytest.mark.usefixtures("found_once")
def test_flood__dense_core__is_the_run_of_the_learning_benchmark_and_late_rows_count_when_they_are_there(
    folders: Folders,
) -> None:
    recipe = NetworkTrial(steps=4, tune_steps=1, rates=(), rows=4, core="dense", clients=5, schedule="constant")
    dense = FloodTrial(**asdict(recipe))
    expected = play(replace(_job(recipe), rate=None), folders)
    at_once, late, alone = (
        play_flood(replace(_job(each), rate=None), folders)
        for each in (dense, replace(dense, cut_off=2, cut_steps=(0, 3)), replace(dense, clients=3))
    )
    assert at_once == expected
    assert late[2].loss == alone[2].loss != at_once[2].loss
    assert late[3].loss != alone[3].loss


def test_flood__hops_as_many_as_the_graph_is_wide__changes_nothing_and_fewer_do(folders: Folders) -> None:
    at_once, wide, slow = (curve(replace(FLOOD, hops=hops), folders) for hops in (None, 2, 1))
    assert wide == at_once
    assert slow[:1] == at_once[:1] and slow[1].loss != at_once[1].loss


def test_flood__examples_dealt_out__gives_another_course(folders: Folders) -> None:
    assert curve(replace(FLOOD, alpha=0.1), folders)[-1].loss != curve(FLOOD, folders)[-1].loss


def test_flood__slopes_below_a_threshold__are_not_told_and_change_nothing(folders: Folders) -> None:
    all_told, some, none = (curve(replace(FLOOD, threshold=threshold), folders)[-1] for threshold in (1e-9, 0.5, 33.0))
    assert all_told.sent is not None and some.sent is not None
    assert replace(all_told, sent=None) == curve(FLOOD, folders)[-1]  # whoever is silent there has measured nothing
    assert 0 < some.sent < all_told.sent <= 20 and some.loss != all_told.loss
    assert none.sent == 0 and none.loss == curve(FLOOD, folders)[0].loss


def test_flood__some_clients_alone_for_a_while__have_told_all_at_its_end_and_count_by_their_weight(
    folders: Folders,
) -> None:
    at_once = curve(FLOOD, folders)
    cut = replace(FLOOD, cut_off=2, cut_steps=(0, 2))
    whole, half, left_out = (curve(replace(cut, cut_weight=weight), folders) for weight in (1.0, 0.5, 0.0))
    alone = curve(replace(FLOOD, clients=3), folders)
    assert whole[1].loss == alone[1].loss != at_once[1].loss  # client 0 hears three, itself among them
    assert len({at_once[2].loss, whole[2].loss, half[2].loss, left_out[2].loss, alone[2].loss}) == 4
    assert left_out[2].loss == alone[2].loss
    assert left_out[3].loss != alone[3].loss  # back again


def test_flood__deliveries_lost__are_there_some_steps_later(folders: Folders) -> None:
    longer = replace(FLOOD, steps=CAUGHT_UP + 2)
    all_lost, some, alone, at_once = (
        curve(recipe, folders)
        for recipe in (replace(longer, lost=1.0), replace(longer, lost=0.3), replace(longer, clients=1), longer)
    )
    losses = [[point.loss for point in each] for each in (all_lost, alone)]
    assert losses[0][:-1] == losses[1][:-1]  # client 0 hears itself alone
    assert len({all_lost[-1].loss, some[-1].loss, alone[-1].loss, at_once[-1].loss}) == 4


def test_flood__clients_away__measure_nothing(folders: Folders) -> None:
    all_there, some, none = (curve(replace(FLOOD, away=away), folders) for away in (0.0, 0.5, 1.0))
    assert len({point.loss for point in none}) == 1 and none[-1].rows == 0
    assert 0 < some[-1].rows < all_there[-1].rows and some[-1].loss not in (none[-1].loss, all_there[-1].loss)


@pytest.mark.parametrize(
    ("hops", "expected"),
    [(1, [1, 1, 2, 3, 4, 3, 2, 1]), (2, [1, 1, 1, 2, 2, 2, 1, 1]), (4, [1] * 8)],
)
def test_delays__ring_of_eight__are_hops_over_hops_a_step_and_never_none(hops: int, expected: list[int]) -> None:
    found = delays("ring", 8, hops)
    assert found[0].tolist() == expected
    assert (found == found.T).all()


@pytest.mark.parametrize("alpha", [0.1, 1_000.0])
def test_dealt__any_skew__every_example_has_one_owner_and_nobody_goes_without(alpha: float) -> None:
    labels = [number % 3 for number in range(600)]
    owned = dealt(labels, 16, alpha, seed=1)
    assert sorted(place for each in owned for place in each) == list(range(600))
    assert all(owned)


def test_dealt__low_alpha__most_of_a_clients_examples_are_of_one_label() -> None:
    labels = [number % 2 for number in range(2_000)]
    means = [
        np.mean([max(np.bincount(np.array(labels)[places], minlength=2)) / len(places) for places in owned])
        for owned in (dealt(labels, 16, alpha, seed=1) for alpha in (0.1, 1_000.0))
    ]
    assert means[0] > 0.85
    assert means[1] < 0.6


@pytest.mark.usefixtures("found_once")
@pytest.mark.parametrize("names", [PARTS[:3], pytest.param(PARTS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_command__quick__fills_the_page_and_keeps_results_and_pictures(
    folders: Folders, tmp_path: Path, names: tuple[str, ...]
) -> None:
    page = tmp_path / "paper.md"
    page.write_text("".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in names), "utf-8")
    arguments = ["--data", str(folders.data), "--models", str(folders.models), "--work", str(tmp_path / "work")]
    arguments += ["--quick", "--jobs", "1", "--parts", ",".join(names), "--write", str(tmp_path)]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    written = page.read_text("utf-8")
    assert "| rank 128 |" in written and "| k = 1, grid |" in written and "| 64 clients |" in written
    assert ("| shards skewed, k = 1 |" in written) == ("breaks" in names)
    assert sorted(json.loads((tmp_path / "paper/conditions.json").read_text("utf-8"))) == sorted(names)
    for name in names[:3]:
        ElementTree.fromstring((tmp_path / f"paper/{name}.svg").read_text("utf-8"))


def test_write__some_parts__the_others_are_kept(tmp_path: Path) -> None:
    marks = {name: f"<!-- measured: {name} -->\nold\n<!-- end -->\n" for name in ("quiet", "breaks")}
    (tmp_path / "paper.md").write_text("".join(marks.values()), "utf-8")
    curve = (Point(step=0, rows=0, accuracy=0.5, loss=1.0), Point(step=1, rows=8, accuracy=0.6, loss=0.9, sent=3))
    one = Compared(task="sst2", name="any", rate=1e-3, tried={}, curves=(curve,))
    write({"breaks": [one]}, tmp_path)
    write({"quiet": [one]}, tmp_path)
    kept = json.loads((tmp_path / "paper/conditions.json").read_text("utf-8"))
    assert kept["breaks"] == kept["quiet"] == [json.loads(json.dumps(asdict(one)))]
    text = (tmp_path / "paper.md").read_text("utf-8")
    assert "old" not in text and "| 60.0 | 3 |" in text


def test_write__some_rows_of_a_part__the_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text("<!-- measured: breaks -->\n<!-- end -->\n", "utf-8")
    curve = (Point(step=0, rows=0, accuracy=0.5, loss=1.0), Point(step=1, rows=8, accuracy=0.6, loss=0.9))
    one = Compared(task="sst2", name="one", rate=1e-3, tried={1e-3: 0.5}, curves=(curve,))
    other = replace(one, name="other")
    write({"breaks": [one, other]}, tmp_path)
    write({"breaks": [replace(one, rate=2e-3)]}, tmp_path)
    assert read_conditions(tmp_path / "paper/conditions.json") == {"breaks": [replace(one, rate=2e-3), other]}


def test_kept_rate__after_the_part_rank_was_written__is_that_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text("<!-- measured: rank -->\n<!-- end -->\n", "utf-8")
    curve = (Point(step=0, rows=0, accuracy=0.5, loss=1.0), Point(step=1, rows=8, accuracy=0.6, loss=0.9))
    others = Compared(task="sst2", name="rank 1", rate=3e-3, tried={}, curves=(curve,))
    assert kept_rate(tmp_path) is None
    write({"rank": [others]}, tmp_path)
    assert kept_rate(tmp_path) is None
    write({"rank": [others, replace(others, name=BASE, rate=2e-4)]}, tmp_path)
    assert kept_rate(tmp_path) == 2e-4


def test_write__page_without_marks__says_which_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text("no marks\n", "utf-8")
    curve = (Point(step=0, rows=0, accuracy=0.5, loss=1.0), Point(step=1, rows=8, accuracy=0.6, loss=0.9))
    one = [Compared(task="sst2", name="any", rate=1e-3, tried={}, curves=(curve,))]
    with pytest.raises(OperatorError, match="0 places for rank; it needs the marks rank, breaks"):
        write({"rank": one, "breaks": one}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["paper.md"]
