"""SeedFlood in worlds of its own: where nothing is late or uneven it is the run of the learning benchmark."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks.learn.curves import Job, Point, play
from benchmarks.learn.problems import MODEL, TASKS, Folders
from benchmarks.learn.trials import NetworkTrial
from benchmarks.paper.flood import FloodTrial, play_flood
from benchmarks.paper.worlds import dealt, delays
from sfnode.demo import data_file, model_folder

TASK = replace(TASKS["sst2"], test_rows=24)
PLAIN = NetworkTrial(
    steps=4, tune_steps=1, rates=(1e-2,), rows=4, rank=4, core="canonical", scalar="raw", directions=1,
    schedule="constant", clients=5, epoch_steps=2,
)  # fmt: skip
FLOOD = FloodTrial(**asdict(PLAIN))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """SST-2 and its model, played by the embedded reviews and model."""
    root = tmp_path_factory.mktemp("shared")
    for name, split in ((TASK.train, "train"), (TASK.tune, "eval"), (TASK.test, "eval")):
        path = root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data_file(split=split).read_bytes())
    (root / "models").mkdir()
    (root / "models" / MODEL).symlink_to(model_folder())
    return Folders(data=root / "data", models=root / "models")


def curve(recipe: FloodTrial, folders: Folders) -> list[Point]:
    return play_flood(_job(recipe), folders)


def _job(recipe: NetworkTrial) -> Job:
    return Job(task=TASK, name="any", recipe=recipe, rate=1e-2, seed=0, is_test=True, evaluated_at=(0, 1, 2, 3))


def test_flood__nothing_late_or_uneven__is_the_run_of_the_learning_benchmark(folders: Folders) -> None:
    expected = play(_job(PLAIN), folders)
    assert curve(FLOOD, folders) == expected
    assert len({point.loss for point in expected}) == 5


def test_flood__hops_as_many_as_the_graph_is_wide__changes_nothing_and_fewer_do(folders: Folders) -> None:
    at_once, wide, slow = (curve(replace(FLOOD, hops=hops), folders) for hops in (None, 2, 1))
    assert wide == at_once
    assert slow[:1] == at_once[:1] and slow[1].loss != at_once[1].loss


def test_flood__examples_dealt_out__gives_another_course(folders: Folders) -> None:
    assert curve(replace(FLOOD, alpha=0.1), folders)[-1].loss != curve(FLOOD, folders)[-1].loss


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
