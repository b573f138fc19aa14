"""The laboratory's figures that need no training: bytes by formula, consensus, and the page that shows them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.learn.page import fill
from benchmarks.learn.problems import SMALL, TASKS, Folders, load, read
from benchmarks.paper import runs
from benchmarks.paper.__main__ import RivalResults, main, read_results, write
from benchmarks.paper.accounting import accounts
from benchmarks.paper.agreement import agreement
from benchmarks.paper.consensus import consensus, consensus_picture
from benchmarks.paper.contest import OURS, SEEDFLOOD, Curve
from benchmarks.paper.language import Language
from benchmarks.paper.rival_tables import RivalCurves, described, parts, picture
from benchmarks.paper.runs import Runs, best
from benchmarks.paper.swarms import SIZES, Swarm, swarm_part, swarm_picture, swarms
from tests import REPOSITORY

pytest_plugins = ("tests.benchmarks.played_folders",)


def test_accounts__papers_setting__gives_the_papers_figures() -> None:
    for account in accounts(b"r" * 110):
        assert account.paper is None or account.counted == pytest.approx(account.paper, rel=0.005), account


def test_consensus__ring_of_16__floods_in_eight_rounds_and_gossips_for_many() -> None:
    found = consensus("ring", 16)
    assert found.flood_rounds == 8 and found.flood[-1] == 0.0 and found.flood[0] == 15 / 16
    assert found.gossip_rounds > 4 * found.flood_rounds
    # one round by hand: a third each of 1 at three places, mean 1/16
    assert found.gossip[1] == pytest.approx(((3 / 9 - 1 / 16) / (1 - 1 / 16)) ** 0.5)


def test_consensus_picture__two_graphs__has_a_line_of_each_way() -> None:
    drawn = consensus_picture([consensus(graph, clients) for graph in ("ring", "star") for clients in (16, 32)])
    assert drawn.count("stroke-dasharray") == 2
    assert all(name in drawn for name in ("ring, gossip", "ring, flood", "star, gossip", "star, flood"))


def test_best__loss_that_is_not_a_number__is_never_taken() -> None:
    assert best({0.1: float("nan"), 0.2: 2.0, 0.3: 1.0}) == 0.3
    assert best({}) is None


def compared(name: str, sent: float) -> RivalCurves:
    curve = Curve(steps=[0, 8], accuracy=[0.5, 0.7], loss=[2.0, 0.6], sent_bytes=[0.0, sent], disagreement=0.1)
    return RivalCurves(name=name, task="sst2", rate=0.1, grid={"0.1": 0.6, "0.3": 0.9}, curves=[curve])


def test_page__figures__stand_in_the_tables_and_the_picture() -> None:
    found = [compared("DSGD", 2.5e9), compared(SEEDFLOOD, 14_080), compared(OURS, 1_984), compared("AdamW, central", 0)]
    page = parts(found, accounts(b"r" * 110), [consensus("ring", 16)])
    assert "| ring | 16 | 8 | 70 |" in page["consensus"]
    assert "| DSGD | 8 | 2.5 GB | 70.0 % (70.0) | 70.0 % | 0.600 | 0.1 |" in page["rivals"]
    assert "| SeedFlood | **0.1**: 0.600, 0.3: 0.900 |" in page["rates"]
    drawn = picture(found)
    assert drawn.count('<g id="line2d') >= 3 and "AdamW, central" in drawn and "10 kB" in drawn
    assert described(999) == "999 B" and described(1.5e13) == "15 TB"
    committed = (REPOSITORY / "docs" / "paper.md").read_text("utf-8")
    assert fill(committed, page) != committed


def test_spread__three_seeds__is_mean_and_standard_deviation() -> None:
    one = compared("DSGD", 2.5e9)
    ends = [replace(one.curves[0], accuracy=[0.5, end]) for end in (0.68, 0.70, 0.72)]
    row = parts([replace(one, curves=ends)], [], [])["rivals"][-1]
    assert "| 70.0 +- 2.0 % (68.0, 70.0, 72.0) |" in row


def test_write__second_run__is_compared_with_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = ("rivals", "rates", "accounting", "consensus", "real rivals", "real rates")
    page = tmp_path / "paper.md"
    page.write_text("".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in marks), "utf-8")
    found = RivalResults(rivals=[compared("DSGD", 2.5e9), compared(SEEDFLOOD, 14_080)])
    for is_real in (False, True):
        write(found, tmp_path, is_real=is_real)
        assert capsys.readouterr().err == ""
        write(found, tmp_path, is_real=is_real)
        assert capsys.readouterr().err == "2 of 2 rows within 3 points of the committed ones\n"
    assert page.read_text("utf-8").count("| DSGD | 8 | 2.5 GB |") == 2
    assert sorted(path.name for path in (tmp_path / "paper").iterdir()) == [
        "consensus.svg",
        "real-rivals.svg",
        "real.json",
        "results.json",
        "rivals.svg",
    ]


def test_write__one_method_again__the_others_stay_in_their_order(tmp_path: Path) -> None:
    marks = ("rivals", "rates", "accounting", "consensus", "swarms")
    page = tmp_path / "paper.md"
    page.write_text("".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in marks), "utf-8")
    curves = compared("DSGD", 1.0).curves
    swarm = Swarm(name=SEEDFLOOD, graph="ring", clients=16, rate=0.1, curves=curves)
    swarms_before = [replace(swarm, clients=32), swarm]
    both = [compared(OURS, 1_984), compared("DSGD", 2.5e9)]
    write(RivalResults(rivals=both, swarms=swarms_before), tmp_path, is_real=False)
    again = replace(compared(OURS, 1_984), rate=0.2)
    write(RivalResults(rivals=[again], swarms=[replace(swarm, clients=4)]), tmp_path, is_real=False)
    kept = read_results(tmp_path / "paper/results.json")
    assert [(each.name, each.rate) for each in kept.rivals] == [("DSGD", 0.1), (OURS, 0.2)]
    assert [each.clients for each in kept.swarms] == [4, 16, 32]


def test_agreement__one_row_of_two_too_far__is_named_with_both_figures() -> None:
    committed = {"sst2, DSGD": 0.70, "sst2, SeedFlood": 0.65, "trec, DSGD": 0.5}
    found = agreement(committed, {"sst2, DSGD": 0.72, "sst2, SeedFlood": 0.60, "new": 0.1})
    assert found == [
        "1 of 2 rows within 3 points of the committed ones",
        "  sst2, SeedFlood: 65.0 % committed, 60.0 % now",
    ]


def test_swarm_part__other_numbers_of_clients__stand_beside_gossip() -> None:
    curves = compared("DSGD", 1.0).curves
    found = [
        Swarm(name=name, graph=graph, clients=clients, rate=0.1, curves=[replace(curves[0], accuracy=[0.5, end])])
        for name, graph, ends in (
            ("DSGD", "ring", (0.6, 0.7, 0.71, 0.72)),
            (SEEDFLOOD, "ring", (0.5, 0.66, 0.69, 0.73)),
            ("DSGD", "torus", (None, 0.71, None, 0.75)),
            ("DSGD", "star", (None, 0.6, None, None)),
        )
        for clients, end in zip(SIZES, ends, strict=True)
        if end is not None
    ]
    assert swarm_part(found)[-3:] == [
        "| SeedFlood, ring | 50.0 %; -10.0 | 66.0 %; -4.0 | 69.0 %; -2.0 | 73.0 %; +1.0 |",
        "| DSGD, grid |  | 71.0 %; +1.0 |  | 75.0 %; +3.0 |",
        "| DSGD, star |  | 60.0 %; -10.0 |  |  |",
    ]
    drawn = swarm_picture(found)
    assert "SeedFlood" in drawn
    assert "DSGD, grid" in drawn
    assert "DSGD, star" not in drawn


def test_swarms__seedflood__divides_its_rate_among_the_clients(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Curve(steps=[0], accuracy=[0.5], loss=[2.0], sent_bytes=[0.0])
    monkeypatch.setattr(runs, "play", lambda _trial, _folders: played)
    found = swarms(TASKS["sst2"], {SEEDFLOOD: 16e-4}, (0, 1), Runs(folders, tmp_path, 1), steps=1)
    assert [(each.clients, each.rate, len(each.curves)) for each in found] == [
        (4, 64e-4, 2),
        (16, 16e-4, 2),
        (32, 8e-4, 1),
        (128, 2e-4, 1),
    ]


@pytest.mark.parametrize("is_lora", [False, True], ids=["all weights", "adapter"])
def test_language__several_clients__is_the_mean_of_each_alone(folders: Folders, is_lora: bool) -> None:
    data, model = read(folders, SMALL, TASKS["sst2"], is_test=False), load(folders, SMALL)
    problem = Language(model, data, [range(9), range(9, 18), range(18, 27)], rows=4, seed=1, is_lora=is_lora)
    start = problem.start()
    alone = torch.stack([problem.gradient([client], start, 5) for client in (0, 2)])
    assert torch.allclose(problem.gradient([0, 2], start, 5), alone.mean(dim=0), atol=1e-5)
    assert not torch.allclose(alone[0], alone[1], atol=1e-3)
    losses = [problem.loss([client], start, 5) for client in (0, 2)]
    assert problem.loss([0, 2], start, 5) == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_command__quick__plays_each_method_once(shared_folder: Path, tmp_path: Path) -> None:
    arguments = ["--quick", "--jobs", "1", "--work", str(tmp_path), "--only", f"ChocoSGD-LoRA,{SEEDFLOOD}"]
    arguments += ["--data", str(shared_folder / "data"), "--models", str(shared_folder / "models")]
    outcome: Any = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert len(re.findall(r"^\| (?:ChocoSGD-LoRA|SeedFlood) \| 4 \|", outcome.stdout, re.MULTILINE)) == 2
    unknown: Any = CliRunner().invoke(main, ["--only", "DSGDD"])
    assert unknown.exit_code == 1 and "'DSGDD' is not known" in unknown.output
