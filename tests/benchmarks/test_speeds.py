"""Machines of unequal speed in virtual time: what each policy lets them do, and what is told of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.learn.problems import TASKS, Folders
from benchmarks.learn.trials import NetworkTrial
from benchmarks.speeds.__main__ import PICTURE, Raced, best_rate, table, write
from benchmarks.speeds.race import LOOKS, Fleet, Policy, Race, SpeedCurve, SpeedTrial

pytest_plugins = ("tests.benchmarks.played_folders",)
FLEET = Fleet(name="1 : 8", round_ms={1_000: 3, 8_000: 1})
TRIAL = SpeedTrial(
    fleet=FLEET, policy=Policy.FIT, rate=1.0, seed=0, rounds=20, is_test=True,
    task=replace(TASKS["sst2"], test_rows=24),
    recipe=NetworkTrial(
        steps=64, tune_steps=0, rates=(), rows=8, rank=4, directions=8, schedule="constant", epoch_steps=64
    ),
)  # fmt: skip


def played(policy: Policy, folders: Folders) -> SpeedCurve:
    return Race(replace(TRIAL, policy=policy), folders).play()


def test_fleet__of_four__the_middle_one_is_the_unit() -> None:
    assert (FLEET.each, FLEET.unit_ms) == ([1_000, 1_000, 1_000, 8_000], 1_000)


def test_race__all_wait__a_round_lasts_as_long_as_the_slowest(folders: Folders) -> None:
    found = played(Policy.WAIT, folders)
    assert found.rows == {1_000: 3 * 3 * 8, 8_000: 2 * 8}  # of 8 s each in 20 s; a third one is under way
    assert len(found.loss) == LOOKS + 1 and found.seconds[-1] == 20.0


def test_race__slow_one_skips__has_whole_rounds_now_and_then(folders: Folders) -> None:
    found = played(Policy.SKIP, folders)
    assert found.rows[8_000] == 2 * 8
    assert found.steps >= 12


def test_race__as_many_as_fit__slow_one_has_a_part_of_every_round(folders: Folders) -> None:
    found = played(Policy.FIT, folders)
    assert found.steps >= 16
    assert found.rows[8_000] > 8 + 4  # one whole round, then one direction in each


def test_race__dense_core__slow_one_has_a_part_of_the_rows_of_a_round(folders: Folders) -> None:
    recipe = NetworkTrial(steps=64, tune_steps=0, rates=(), rows=8, schedule="constant", core="dense")
    found = Race(replace(TRIAL, recipe=recipe), folders).play()
    assert found.steps >= 16
    assert 8 + 4 < found.rows[8_000] < found.rows[1_000] / 3
    assert found.loss[-1] < found.loss[0]


def test_best_rate__loss_has_a_minimum__finds_it_on_either_side() -> None:
    for minimum in (8.0, 1.0, 0.125):
        assert best_rate(lambda rate, best=minimum: abs(math.log2(rate / best))) == minimum  # type: ignore[misc]
    assert best_rate(lambda rate: math.nan if rate > 1 else rate) < 1 / 4


def raced(policy: Policy, losses: list[float]) -> Raced:
    curve = SpeedCurve(
        seconds=[0.0, 100.0, 200.0], accuracy=[0.5, 0.6, 0.7], loss=losses, rows={1_000: 1_600, 8_000: 160},
        steps=40,
    )  # fmt: skip
    return Raced(fleet="1 : 8", policy=policy.value, rate=5e-4, curves=[curve] * 3)


def test_write__three_policies__fills_the_page_and_draws_the_picture(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text("<!-- measured: speeds -->\nold\n<!-- end -->\n")
    found = [
        raced(Policy.WAIT, [2.0, 1.5, 1.0]), raced(Policy.SKIP, [2.0, 1.2, 1.1]), raced(Policy.FIT, [2.0, 0.9, 0.8])
    ]  # fmt: skip
    write(found, tmp_path)
    assert [line.split(" | ")[-1] for line in table(found)[2:]] == ["200 s |", "- |", "100 s |"]
    page = (tmp_path / "paper.md").read_text()
    assert "| 1 : 8 | as many rows as fit | 0.0005 | 40 | 1,600 + 160 | 0.800 | 70.0 % | 100 s |" in page
    ElementTree.parse(tmp_path / "paper" / PICTURE)
