"""The learning benchmark on the embedded model and data: what it counts, keeps, tells and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner

from benchmarks.costs.references import mezo_step
from benchmarks.learn import __main__ as command, jobs, problems, recipes
from benchmarks.learn.clients import opposite
from benchmarks.learn.comparison import Compared, compare
from benchmarks.learn.curves import Job, Point, first_reach, play
from benchmarks.learn.jobs import Curves
from benchmarks.learn.noise import Noise, measure_noise
from benchmarks.learn.page import fill, parts, real_parts
from benchmarks.learn.pictures import draw_pictures
from benchmarks.learn.plain import quick_mezo_step
from benchmarks.learn.problems import SMALL, TASKS, Folders, load, read
from benchmarks.learn.recipes import MEZO, RECIPES, SMALL_STUDY
from benchmarks.learn.results import Results, from_plain, reached, renewed, to_plain
from benchmarks.learn.scaling import Scaled
from benchmarks.learn.spaces import space_of
from benchmarks.learn.trials import BackPropagation, Mezo, NetworkTrial, Recipe
from benchmarks.sample_runs import signer
from protocol.errors import OperatorError
from protocol.ledger import EnvelopeCodec
from protocol.state import CoefficientLayout
from sfnode.training.shared_model import SharedModel
from tests import REPOSITORY
from tests.support.manifests import small_manifest

pytest_plugins = ("tests.benchmarks.played_folders",)
TASK = replace(TASKS["sst2"], test_rows=24)
MEZO_RECIPE = Mezo(steps=2, tune_steps=1, rates=(1e-3, 1e-2), rows=4)
NETWORK = NetworkTrial(steps=2, tune_steps=1, rates=(1e-3,), rows=4, rank=4, directions=4, schedule="constant")
DENSE = NetworkTrial(steps=2, tune_steps=1, rates=(), rows=4, core="dense", clients=3, schedule="constant")
BASIS_ROWS = 256  # at least, of `find_basis`
BACK = BackPropagation(steps=2, tune_steps=1, rates=(1e-3,), rows=4, is_lora=False)


def job(recipe: Recipe, *, rate: float | None = 1e-3, seed: int = 0) -> Job:
    return Job(task=TASK, name="any", recipe=recipe, rate=rate, seed=seed, is_test=True)


def points(*accuracies: float) -> tuple[Point, ...]:
    """An evaluation every ten steps of 32 rows."""
    return tuple(
        Point(step=10 * index, rows=320 * index, accuracy=accuracy, loss=1.0)
        for index, accuracy in enumerate(accuracies)
    )


def some_results() -> Results:
    mezo = (points(0.5, 0.5, 0.6, 0.6, 0.7), points(0.5, 0.5, 0.5, 0.6, 0.6), points(0.5, 0.6, 0.6, 0.7, 0.8))
    ours = (points(0.5, 0.7, 0.7), points(0.5, 0.6, 0.7), points(0.5, 0.5, 0.6))
    compared = (
        Compared(task="sst2", name=MEZO, rate=1e-3, tried={1e-3: 0.7, 1e-4: 0.6}, curves=mezo),
        Compared(task="sst2", name="dense core", rate=None, tried={}, curves=ours),
    )
    scaled = (Scaled(clients=1, rate=2e-3, curves=ours), Scaled(clients=4, rate=2e-3, curves=ours))
    noise = {"sst2": Noise(all=2.0, linear=3.0)}
    return Results(
        model="any fp32",
        seeds=(0, 1, 2),
        noise=noise,
        compared=compared,
        scaled=scaled,
        cheats=compared[1:],
        metric=compared[1:],
    )


class Player:
    """Stands for `play`: notes the jobs, and gives each the loss of its rate all along."""

    def __init__(self, loss: dict[float, float]) -> None:
        self.played: list[Job] = []
        self._loss = loss

    def __call__(self, job: Job, _folders: Folders) -> list[Point]:
        self.played.append(job)
        return [replace(point, loss=self._loss[job.rate or 0]) for point in points(0.5, 0.6)]


def test_opposite__either_kind_of_scalar__is_valid_and_points_the_other_way() -> None:
    raw = small_manifest(directions=4, clip=9).method
    normalised = small_manifest(directions=4, scalar="normalised", clip=127).method
    assert opposite(raw, (3, -1, 0, 9)) == (-9, 9, 9, -9)
    assert opposite(normalised, (100, -50, 0, 60)) == (-100, 50, 0, -60)


@pytest.mark.usefixtures("found_once")
def test_opposite__dense_message__has_all_rows_and_the_energy_that_it_may_have(folders: Folders) -> None:
    data, shared = read(folders, SMALL, TASK, is_test=True), SharedModel(load(folders, SMALL))
    manifest = space_of(DENSE, TASK, data, shared, rate=None, seed=0).bases.manifest
    q = (1, *range(-7, -7 + CoefficientLayout(manifest).size - 1))
    turned = opposite(manifest.method, q)
    key, codec = signer(0), EnvelopeCodec(manifest)
    taken = codec.decode_untrusted(codec.seal(key, 0, turned).record)
    assert taken.scalars + taken.measured == turned
    energy = sum(each * each for each in turned[1:])
    assert turned[0] == 4 and 0.8 * manifest.method.energy_max < energy <= manifest.method.energy_max
    assert sum(one * other for one, other in zip(q[1:], turned[1:], strict=True)) < 0


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (MEZO_RECIPE, [0, 8, 16]),
        (BACK, [0, 4, 8]),
        (replace(BACK, is_lora=True), [0, 4, 8]),
        (NETWORK, [0, 8, 16]),
        (replace(NETWORK, sides=1, shares=2), [0, 12, 24]),
        (replace(NETWORK, clients=3), [0, 24, 48]),
        (replace(NETWORK, clients=3, cheats=1), [0, 24, 48]),
        (replace(NETWORK, scalar="raw", directions=1, core="canonical"), [0, 8, 16]),
    ],
)
def test_play__every_kind_of_recipe__counts_forward_rows_and_moves_the_model(
    recipe: Recipe, expected: list[int], folders: Folders
) -> None:
    found = play(replace(job(recipe, rate=2e-2), evaluated_at=(0, 1)), folders)
    assert [point.step for point in found] == [0, 1, 2]
    assert [point.rows for point in found] == expected
    assert len({point.loss for point in found}) == 3


@pytest.mark.usefixtures("found_once")
@pytest.mark.parametrize("cheats", [0, 1])
def test_play__dense_core__counts_the_rows_of_its_basis_and_of_all_clients(cheats: int, folders: Folders) -> None:
    found = play(replace(job(replace(DENSE, cheats=cheats), rate=None), evaluated_at=(0, 1)), folders)
    assert found[0].rows > BASIS_ROWS
    assert [point.rows - found[0].rows for point in found] == [0, 12, 24]
    assert len({point.loss for point in found}) == 3


@pytest.mark.usefixtures("found_once")
def test_play__network_and_plain_model__start_at_the_same_accuracy_and_loss(folders: Folders) -> None:
    plain, *networks = (
        play(replace(job(recipe), evaluated_at=(0,)), folders)[0] for recipe in (MEZO_RECIPE, NETWORK, DENSE)
    )
    for network in networks:
        assert plain.accuracy == network.accuracy
        assert plain.loss == pytest.approx(network.loss, abs=2e-4)


@pytest.mark.parametrize("recipe", [MEZO_RECIPE, NETWORK, DENSE, replace(BACK, is_lora=True)])
def test_play__same_seed_again__same_curve_and_another_with_another_seed(recipe: Recipe, folders: Folders) -> None:
    rate = None if recipe == DENSE else 1e-3
    first, again, other = (play(job(recipe, rate=rate, seed=seed), folders) for seed in (1, 1, 2))
    assert first == again
    assert first[0].loss == other[0].loss and first[-1].loss != other[-1].loss


@pytest.mark.parametrize(("recipe", "rate"), [(NETWORK, 3e-3), (DENSE, None), (BACK, 3e-3)])
def test_play__more_steps__loss_falls(recipe: Recipe, rate: float | None, folders: Folders) -> None:
    found = play(job(replace(recipe, steps=20, rows=8), rate=rate), folders)
    assert found[-1].loss < found[0].loss - 0.01


def test_curves__called_again__takes_what_is_kept_unless_the_job_differs(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player({1e-3: 0.5, 2e-3: 0.6})
    monkeypatch.setattr(jobs, "play", player)
    first = job(NETWORK)
    same = job(replace(NETWORK, rates=(5.0,), tune_steps=7))  # how its rate was chosen does not matter
    others = [job(replace(NETWORK, directions=2)), job(NETWORK, rate=2e-3), job(NETWORK, seed=1)]
    found = Curves(folders, tmp_path / "curves", 1).of([first, same, *others])
    assert player.played == [first, *others]
    assert Curves(folders, tmp_path / "curves", 1).of([first, *others]) == [found[0], *found[2:]]
    assert Curves(folders, tmp_path / "curves", 1).of([replace(first, name="another name")]) == [found[0]]
    assert len(player.played) == 4 and found[0] != found[3]


def test_compare__several_rates__takes_the_one_with_the_lowest_loss(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {1e-3: 0.9, 1e-2: 0.5}
    player = Player(losses)
    monkeypatch.setattr(jobs, "play", player)
    (found,) = compare({MEZO: MEZO_RECIPE}, [TASK], replace(SMALL_STUDY, seeds=(3, 4)), Curves(folders, tmp_path, 1))
    assert (found.rate, found.tried, len(found.curves)) == (1e-2, losses, 2)
    assert [(job.is_test, job.rate, job.seed, job.recipe.steps) for job in player.played] == [
        (False, 1e-3, 100, 1),
        (False, 1e-2, 100, 1),
        (True, 1e-2, 3, 2),
        (True, 1e-2, 4, 2),
    ]


def test_quick_mezo_step__against_the_step_of_the_bench__same_bits() -> None:
    twins = [[torch.linspace(-1, 1, 50).view(5, 10), torch.ones(7)] for _ in range(2)]

    def loss_of(twin: list[torch.Tensor]) -> torch.Tensor:
        return (twin[0] * 3).square().sum() + twin[1].sum()

    gradients = [
        step(twin, partial(loss_of, twin), 7, 1e-3, 1e-2)
        for step, twin in zip((mezo_step, quick_mezo_step), twins, strict=True)
    ]
    assert gradients[0] == gradients[1] != 0
    assert all(torch.equal(one, other) for one, other in zip(*twins, strict=True))
    assert not torch.equal(twins[0][1], torch.ones(7))


def test_first_reach__one_lucky_evaluation__does_not_count() -> None:
    curve = points(0.5, 0.7, 0.6, 0.7, 0.8)
    found = first_reach(curve, 0.7)
    assert found == curve[3]
    assert first_reach(curve, 0.8) == curve[4]  # the last one has no next
    assert first_reach(curve, 0.9) is None


def test_reached__some_seeds_never__median_counts_them_as_infinite() -> None:
    mezo, ours = reached(some_results().compared)
    assert mezo.rows == (1280, None, 960) and mezo.share == 1.0
    assert ours.rows == (320, 640, None) and ours.share == 0.5


def test_noise__few_examples__is_a_ratio_above_one(folders: Folders) -> None:
    found = measure_noise(folders, SMALL, TASK, 32)
    assert found.all > 1 and found.linear > 1


def test_results__through_json__are_the_same() -> None:
    results = some_results()
    assert from_plain(json.loads(json.dumps(to_plain(results)))) == results


def test_renewed__a_part_is_measured_anew__the_rest_stays() -> None:
    """`make learn-real` for one task removed the tables of all others."""
    old = some_results()
    ours = replace(old.compared[1], rate=0.5)
    more = replace(old.scaled[0], clients=2)
    new = replace(old, compared=(ours, replace(ours, task="trec")), scaled=(more,), noise={})
    found = renewed(old, new)
    assert [(each.factor, each.clients) for each in found.scaled] == sorted(
        (each.factor, each.clients) for each in (*old.scaled, more)
    )
    assert [(each.task, each.name, each.rate) for each in found.compared] == [
        (old.compared[0].task, old.compared[0].name, old.compared[0].rate),
        (ours.task, ours.name, 0.5),
        ("trec", ours.name, 0.5),
    ]
    assert (found.noise, len(found.scaled)) == (old.noise, len(old.scaled) + 1)
    assert renewed(replace(old, model="another"), new) == new


def test_renewed__clients_at_two_rates__both_stay() -> None:
    """A call for one recipe left the clients' table of the small model with its second rate alone."""
    old = some_results()
    old = replace(old, scaled=tuple(replace(old.scaled[0], rate=rate) for rate in (0.001, 0.004)))
    assert renewed(old, replace(old, scaled=())).scaled == old.scaled


def test_pictures__some_results__one_for_each_task_and_the_clients(tmp_path: Path) -> None:
    assert draw_pictures(some_results(), tmp_path) == ["sst2.svg", "clients.svg"]
    for name in ("sst2", "clients"):
        text = (tmp_path / f"{name}.svg").read_text("utf-8")
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert ("dense core" if name == "sst2" else "4 clients") in text


def test_page__marks__hold_the_figures_and_the_rest_stays() -> None:
    results = some_results()
    marks = "\n".join(f"<!-- measured: {name} -->\nold\n<!-- end -->" for name in parts(results))
    page = fill(f"before\n{marks}\nafter\n", parts(results))
    assert "old" not in page and page.startswith("before\n") and page.endswith("\nafter\n")
    assert "| dense core | 640 | 320, 640, not reached | **2.0** | 70.0 % (70.0, 70.0, 60.0) | 640 |" in page
    assert fill(page, parts(results)) == page


def test_write__a_loss_between_two_roundings__page_and_file_tell_the_same(tmp_path: Path) -> None:
    """0.60449 was 0.604 on the page; the file had 0.6045, of which the page makes 0.605."""
    results = some_results()
    first = replace(results.compared[0], rate=1e-3, tried={1e-3: 0.60449, 1e-2: 0.7})
    marks = "\n".join(f"<!-- measured: {name} -->\n<!-- end -->" for name in parts(results))
    (tmp_path / "learning").mkdir()
    (tmp_path / "learning.md").write_text(marks, "utf-8")
    command.write(replace(results, compared=(first, *results.compared[1:])), tmp_path, is_real=False)
    page = (tmp_path / "learning.md").read_text("utf-8")
    kept = from_plain(json.loads((tmp_path / "learning/results.json").read_text("utf-8")))
    assert "**0.001**: 0.60" in page
    assert fill(page, parts(kept)) == page


def test_page__some_seeds_on_a_card__says_which_and_survives_the_file() -> None:
    results = some_results()
    assert not any("On an" in line for lines in real_parts(results).values() for line in lines)
    mezo, ours = results.compared
    last = tuple(replace(point, card="NVIDIA H100") for point in ours.curves[2])
    found = replace(results, compared=(mezo, replace(ours, curves=(*ours.curves[:2], last))))
    kept = from_plain(json.loads(json.dumps(to_plain(found))))
    assert "On an NVIDIA H100: SST-2 dense core (seeds 2)." in real_parts(kept)["real courses"]
    several = replace(found, scaled=tuple(replace(each, curves=(last,) * 3) for each in results.scaled))
    kept = from_plain(json.loads(json.dumps(to_plain(several))))
    expected = "On an NVIDIA H100: 1 clients (seeds 0, 1, 2); 4 clients (seeds 0, 1, 2)."
    assert expected in real_parts(kept)["real clients"]


def test_page__a_mark_is_missing__is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for noise"):
        fill("nothing", {"noise": ["none"]})


def test_learning_page__in_the_repository__tells_what_results_json_holds() -> None:
    page = (REPOSITORY / "docs/learning.md").read_text("utf-8")
    for name, parts_of in (("results", parts), ("real", real_parts)):
        results = from_plain(json.loads((REPOSITORY / f"docs/learning/{name}.json").read_text("utf-8")))
        assert fill(page, parts_of(results)) == page


def test_folders__a_file_is_missing__is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"sst2/train_1024\.jsonl is missing: `make data`"):
        Folders(data=tmp_path, models=tmp_path).check(SMALL, [TASK])


def test_folders__device_is_absent__is_refused_before_any_work(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OperatorError, match="device 'cuda': this machine or this build of torch has none"):
        replace(folders, device="cuda").check(SMALL, [TASK])
    replace(folders, device="cpu").check(SMALL, [TASK])
    assert replace(folders, device="cpu").card == ""


def test_folders__graphics_card__is_what_points_name_and_no_part_of_the_digest(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Big Card")
    monkeypatch.setattr(problems, "choose_device", lambda _name: torch.device("cpu"))
    wanted = job(MEZO_RECIPE)
    on_card = Curves(replace(folders, device="cuda"), tmp_path, 1).of([wanted])
    assert {point.card for point in on_card[0]} == {"Big Card"}
    assert Curves(folders, tmp_path, 1).of([wanted]) == on_card  # kept, not computed anew


def test_tasks__label_words__are_one_token_each(folders: Folders) -> None:
    assert len(read(folders, SMALL, TASK, is_test=True).label_tokens) == 2


@pytest.mark.slow  # that of a real model in test_learn_real goes the same ways
def test_command__quick__writes_json_pictures_and_page(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "QUICK_STEPS", 2)
    (tmp_path / "docs").mkdir()
    page = (REPOSITORY / "docs/learning.md").read_text("utf-8")
    (tmp_path / "docs" / "learning.md").write_text(page, "utf-8")
    options = {"data": folders.data, "models": folders.models, "work": tmp_path, "write": tmp_path / "docs", "jobs": 1}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = CliRunner().invoke(command.main, [*arguments, "--quick", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    plain = json.loads(done.stdout)
    assert {each["name"] for each in plain["compared"]} == set(RECIPES)
    assert {each["clients"] for each in plain["scaled"]} == {1, 4}
    assert json.loads((tmp_path / "docs/learning/results.json").read_text("utf-8")) == plain
    assert (tmp_path / "docs/learning/sst2.svg").exists()
    assert (tmp_path / "docs/learning.md").read_text("utf-8") != page


def test_command__unknown_task__says_which_are_known() -> None:
    done = CliRunner().invoke(command.main, ["--tasks", "mnli"])
    assert done.exit_code == 1 and "known are sst2, trec, agnews" in done.output
