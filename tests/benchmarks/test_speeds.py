"""Machines of unequal speed in virtual time: what each policy lets them do, and what is written of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner

from benchmarks.learn.problems import Folders
from benchmarks.one_pass.laboratory import CALIBRATION_ROWS, Laboratory, make_laboratory
from benchmarks.one_pass.layers import LateLayers
from benchmarks.one_pass.training import Reading, look
from benchmarks.speeds import __main__ as speeds
from benchmarks.speeds.__main__ import PICTURE, Raced, table, write
from benchmarks.speeds.race import LOOKS, Fleet, Policy, Race, SpeedCurve, SpeedTrial
from tests.benchmarks.tiny_rows import ROWS, WORDS, tiny_examples, tiny_llama

FLEET = Fleet(name="8 : 1", row_ms={62: 3, 500: 1})  # a whole message in 1 s, or in 8


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    """A basis from the rows, and the rows to draw from."""
    layers = LateLayers(tiny_llama(), tiny_examples(), WORDS, first=1)
    order = [row % ROWS for row in range(CALIBRATION_ROWS + ROWS)]
    return make_laboratory(layers, layers, order, seed=0, rank=8)


@pytest.fixture(scope="module")
def start(laboratory: Laboratory) -> Reading:
    """How good the unmoved model is."""
    return look(laboratory.test, laboratory.basis, laboratory.basis.zero(), 0)


def played(policy: Policy, laboratory: Laboratory, start: Reading) -> SpeedCurve:
    trial = SpeedTrial(fleet=FLEET, policy=policy, seed=0, seconds=20)
    return Race(trial, laboratory, start).play()


def test_fleet__of_four__is_listed_from_the_fastest() -> None:
    assert FLEET.each == [62, 62, 62, 500]


def test_race__all_wait__a_round_lasts_as_long_as_the_slowest(laboratory: Laboratory, start: Reading) -> None:
    found = played(Policy.WAIT, laboratory, start)
    assert found.rows == {62: 3 * 3 * 16, 500: 2 * 16}  # of 8 s each in 20 s; a third one is under way
    assert len(found.loss) == len(LOOKS) + 1 and found.seconds[-1] == 20.0
    assert found.loss[0] == pytest.approx(start.loss[0], abs=1e-4)


def test_race__slow_one_skips__has_whole_rounds_now_and_then(laboratory: Laboratory, start: Reading) -> None:
    found = played(Policy.SKIP, laboratory, start)
    assert found.rows[500] == 2 * 16
    assert found.steps >= 12


def test_race__as_many_as_fit__slow_one_has_a_part_of_every_round(laboratory: Laboratory, start: Reading) -> None:
    found = played(Policy.FIT, laboratory, start)
    assert found.steps >= 16
    assert 16 + 4 < found.rows[500] < found.rows[62] / 3  # one whole round, then a row or two in each
    assert found.loss[-1] < 0.9 * start.loss[0]


def test_race__one_step_in_any_parts__moves_the_core_as_one_quotient(laboratory: Laboratory, start: Reading) -> None:
    """A late message changes its own step's quotient and nothing else."""
    race = Race(SpeedTrial(fleet=FLEET, policy=Policy.FIT, seed=0, seconds=3), laboratory, start)
    race.play()
    sums = race.sums.values()
    assert any(rows > 16 for _, rows in sums)
    expected = -3.0 / laboratory.basis.curvature * sum(total / (rows + 128) for total, rows in sums)
    torch.testing.assert_close(race.core, expected, rtol=1e-4, atol=1e-6)


def raced(policy: Policy, accuracy: list[float]) -> Raced:
    curves = [
        SpeedCurve(
            seconds=[0.0, 45.0, 180.0], accuracy=[each + seed for each in accuracy], loss=[2.0, 1.5, 0.5],
            rows={500: 160, 62: 1_600}, steps=40,
        )
        for seed in range(3)
    ]  # fmt: skip
    return Raced(task="sst2", policy=policy.value, curves=curves)


def test_table__measured_on_a_card__says_on_which() -> None:
    found = [raced(policy, [50.0, 60.0, 70.0]) for policy in Policy]
    assert table([replace(each, card="NVIDIA H100") for each in found]) == [
        *table(found),
        "",
        "Measured on an NVIDIA H100.",
    ]


def test_command__on_a_cpu__races_every_policy(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folders, "check", lambda *_: None)
    monkeypatch.setattr(speeds, "late_layers", lambda *_, **__: (laboratory.layers, laboratory.test))
    monkeypatch.setattr(speeds, "make_laboratory", lambda *_: laboratory)
    arguments = ["--device", "cpu", "--seeds", "1", "--seconds", "3", "--json"]
    done = CliRunner().invoke(speeds.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [(each["policy"], each["card"]) for each in json.loads(done.stdout)["speeds"]] == [
        (policy.value, "") for policy in Policy
    ]


def test_write__three_policies__fills_the_page_and_draws_the_picture(tmp_path: Path) -> None:
    (tmp_path / "learning.md").write_text("<!-- measured: speeds -->\nold\n<!-- end -->\n")
    write([raced(policy, [50.0, 60.0, 70.0]) for policy in Policy], tmp_path)
    page = (tmp_path / "learning.md").read_text()
    assert (
        "| sst2 | as many rows as fit | 40 | 1,600 + 160 | 51.0 (2.000) | 61.0 (1.500) | 71.0 (0.500) "
        "| 70.0, 71.0, 72.0 |" in page
    )
    ElementTree.parse(tmp_path / "learning" / PICTURE)
