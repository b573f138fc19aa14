"""The learning benchmark with a model of the user's choice: here the embedded one, in bf16, on the embedded reviews."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from transformers import PreTrainedModel

from benchmarks.learn import __main__ as command, curves, plain, recipes
from benchmarks.learn.clients import Clients
from benchmarks.learn.curvature import described, measure
from benchmarks.learn.curves import Job, play
from benchmarks.learn.designs import Design, captured
from benchmarks.learn.noise import measure_noise
from benchmarks.learn.page import real_parts
from benchmarks.learn.plain import train_mezo
from benchmarks.learn.problems import REAL_TASKS, SMALL, Folders, ModelChoice, Task, load, read, read_user_task
from benchmarks.learn.recipes import REAL_RECIPES, REAL_STUDY
from benchmarks.learn.results import Results, is_first_order
from benchmarks.learn.scaling import Scaling, scale
from benchmarks.learn.spaces import bases_of, calibrated, tensors_of
from benchmarks.learn.trained_core import TrainedCore, measure_dimension, participation
from benchmarks.learn.trials import BackPropagation, CoreTrial, Mezo, NetworkTrial, Recipe
from protocol.errors import OperatorError
from sfnode.demo import data_file
from sfnode.training.calibration import FoundBasis
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, batch_of
from tests import REPOSITORY

EXACT = ModelChoice(reference="embedded:tiny-opt", dtype="fp32")
ROUNDED = replace(EXACT, dtype="bf16")
NETWORK = NetworkTrial(
    steps=2,
    tune_steps=1,
    rates=(),
    rows=4,
    rank=4,
    directions=4,
    basis="forward",
    epsilon_exp=None,
    schedule="constant",
)
CORE = CoreTrial(steps=2, tune_steps=1, rates=(1e-3,), rows=4, rank=4, basis="gradient", calibration_rows=16)
LORA = BackPropagation(steps=2, tune_steps=1, rates=(1e-3,), rows=4, is_lora=True, lora_targets="all-linear")
TOML = """
builtin = "embedded:reviews"
train = "train.jsonl"
tune = "eval.jsonl"
test = "eval.jsonl"
test_rows = 24
max_tokens = 48
"""


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's task: a TOML file beside its data."""
    folder = tmp_path_factory.mktemp("task")
    for split in ("train", "eval"):
        (folder / f"{split}.jsonl").write_bytes(data_file(split=split).read_bytes())
    path = folder / "mine.toml"
    path.write_text(TOML, "utf-8")
    return path


@pytest.fixture(scope="module")
def task(toml: Path) -> Task:
    return read_user_task(toml)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Nothing is looked for in them: the task says where its files are, and the model is not the small one."""
    return Folders(data=tmp_path_factory.mktemp("none"), models=Path("none"))


def job(task: Task, recipe: Recipe, *, rate: float | None = 1e-3, model: ModelChoice = ROUNDED) -> Job:
    return Job(task=task, name="any", recipe=recipe, rate=rate, seed=0, is_test=True, model=model)


def test_user_task__toml_file__has_the_builtin_prompt_and_finds_its_files(task: Task, folders: Folders) -> None:
    assert (task.name, task.label_words, task.test_rows) == ("mine", (" no", " yes"), 24)
    folders.check(ROUNDED, [task])
    assert len(read(folders, ROUNDED, task, is_test=True).label_tokens) == 2


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("test_rows = 24", "tests_rows = 24", "unknown field 'tests_rows'; known are name, template"),
        ('builtin = "embedded:reviews"', 'builtin = "mnli"', "builtin = 'mnli': known are sst2, rte"),
        ("max_tokens = 48", "max_tokens = '48'", "max_tokens: '48' is not of type int"),
        ('builtin = "embedded:reviews"', 'template = "{sentence}"', "field 'label_words' is missing"),
    ],
)
def test_user_task__a_field_is_wrong__is_named(line: str, instead: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(TOML.replace(line, instead), "utf-8")
    with pytest.raises(OperatorError, match=said):
        read_user_task(path)


def test_user_task__label_word_of_several_tokens__is_refused(task: Task, folders: Folders) -> None:
    with pytest.raises(OperatorError, match="label words of one token each"):
        read(folders, ROUNDED, replace(task, label_words=(" no", " not at all")), is_test=True)


def test_real_tasks__are_those_of_sfnode_init__with_test_files_of_their_own() -> None:
    assert REAL_TASKS["rte"].label_words == ("Yes", "No")
    assert all(each.test not in (each.tune, each.train) for each in REAL_TASKS.values())


@pytest.mark.parametrize(
    ("recipe", "rate", "expected"),
    [
        (Mezo(steps=2, tune_steps=1, rates=(1e-3,), rows=4), 2e-2, [0, 8, 16]),
        (LORA, 2e-2, [0, 4, 8]),
        (replace(NETWORK, calibration_rows=16, rate_factor=64.0), None, [28, 36, 44]),
        (CORE, 2e-2, [64, 68, 72]),
        (replace(CORE, basis="forward"), 0.5, [28, 32, 36]),
    ],
)
def test_play__every_real_recipe_in_bf16__counts_forward_rows_and_moves_the_model(
    recipe: Recipe,
    rate: float | None,
    expected: list[int],
    task: Task,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In four decimals two losses that differ are one on some processors: 0.014498 and 0.014520 where bf16 is emulated
    monkeypatch.setattr(curves, "round", lambda value, _decimals: value, raising=False)
    found = play(replace(job(task, recipe, rate=rate), evaluated_at=(0, 1)), folders)
    assert [point.rows for point in found] == expected
    assert len({point.loss for point in found}) == 3


@pytest.mark.parametrize("recipe", [LORA, CORE])
def test_play__back_propagation_with_more_steps__loss_falls(recipe: Recipe, task: Task, folders: Folders) -> None:
    found = play(job(task, replace(recipe, steps=12, rows=8), rate=3e-3), folders)
    assert found[-1].loss < found[0].loss - 0.02


def test_job__another_model__has_another_title_and_the_small_one_none(task: Task) -> None:
    assert job(task, NETWORK, rate=None).title == "embedded:tiny-opt bf16 mine any suggested test seed 0"
    assert job(task, NETWORK, model=SMALL).title == "mine any 0.001 test seed 0"


def stub_model(weight: Tensor) -> PreTrainedModel:
    """A model with one parameter."""
    held = nn.Module()
    held.weight = nn.Parameter(weight, requires_grad=False)
    return cast(PreTrainedModel, held)


def test_mezo__bf16_weights__steps_below_their_rounding_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def small_step(weights: list[Tensor], *_: object) -> None:
        weights[0].sub_(1e-4)  # bf16 has nothing between 0.996 and 1

    model = stub_model(torch.ones(1, dtype=torch.bfloat16))
    monkeypatch.setattr(plain, "quick_mezo_step", small_step)
    data = TaskData(label_tokens=(1, 2), examples=(Example(tokens=(1,), label=0),))
    rows = train_mezo(Mezo(steps=200, tune_steps=1, rates=()), model, data, 1e-3, 0)
    assert [next(rows) for _ in range(201)][-1] == 200 * 32
    (weight,) = model.parameters()
    assert weight.dtype == torch.bfloat16
    assert float(weight) == pytest.approx(0.98, abs=2e-3)


def test_spaces__calibration_suggests__run_takes_it_unless_the_recipe_says_otherwise(
    task: Task, folders: Folders
) -> None:
    shared = SharedModel(load(folders, EXACT))
    data, tensors = read(folders, EXACT, task, is_test=False), tensors_of(NETWORK, shared)
    plain_found = calibrated(NETWORK, data, shared, tensors, 0)
    assert plain_found is not None
    found = FoundBasis(bases=plain_found.bases, learning_rate=2e-4, epsilon_exp=-7)

    def of(recipe: NetworkTrial, rate: float | None) -> tuple[float, int]:
        manifest = bases_of(recipe, task, tensors, found, rate).manifest
        # Normalised scalars: 32 / rms g, and the mean over the directions (`sfnode.run.builder`).
        learning_rate = 2.0**manifest.method.alpha_exp * manifest.weight(0) * 32 * manifest.method.directions
        return float(f"{learning_rate:.2g}"), manifest.method.epsilon_exp

    assert of(NETWORK, None) == (2e-4, -7)
    assert of(replace(NETWORK, rate_factor=0.25), None) == (5e-5, -7)
    assert of(replace(NETWORK, epsilon_exp=-10), 1e-3) == (1e-3, -10)


def test_scale__rate_is_suggested__clients_take_the_factor_of_it(task: Task) -> None:
    class Noted:
        def __init__(self) -> None:
            self.jobs: list[Job] = []

        def of(self, jobs: list[Job]) -> list[list[object]]:
            self.jobs += jobs
            return [[] for _ in jobs]

    scaling = Scaling(recipe="any", task=None, steps={1: 9, 256: 1}, once=1, factors=(0.25,), evaluated_at=(0, 1))
    noted = Noted()
    found = scale(scaling, job(task, NETWORK, rate=None), (0, 1), noted)  # type: ignore[arg-type]
    assert [(each.clients, each.rate, each.factor, len(each.curves)) for each in found] == [
        (1, None, 0.25, 2),
        (256, None, 0.25, 1),
    ]
    assert [(each.recipe.steps, each.recipe.rows_each_step, each.rate) for each in noted.jobs[:1]] == [(1, 2048, None)]


def test_trained_core__its_gradient__is_the_weights_gradient_between_both_sides(task: Task, folders: Folders) -> None:
    data = read(folders, EXACT, task, is_test=False)
    recipe, examples = replace(CORE, rank=2), data.examples[:20]
    core = TrainedCore(recipe, task, data, load(folders, EXACT), seed=0)
    shared = SharedModel(load(folders, EXACT))
    tensors = tensors_of(recipe.network, shared)
    found = calibrated(recipe.network, data, shared, tensors, 0)
    assert found is not None
    weights = [shared.switch.base[tensor.name].requires_grad_(True) for tensor in tensors]
    loss = shared.scores(batch_of(data, examples, 1, shared.device), data.label_tokens).loss.mean()
    expected = [
        torch.from_numpy(basis.u).float().T / 8 @ gradient @ torch.from_numpy(basis.v).float() / 8
        for basis, gradient in zip(found.bases, torch.autograd.grad(loss, weights), strict=True)
        if basis.v is not None
    ]
    torch.testing.assert_close(core.gradient(examples), torch.cat([each.reshape(-1) for each in expected]))


def test_participation__how_many_numbers_count__is_told() -> None:
    assert participation(torch.full((7,), -3.0)) == pytest.approx(7)
    assert participation(torch.tensor([0.0, 5.0, 0.0])) == 1
    assert participation(torch.zeros(3)) == 0


def test_dimension_and_noise__in_bf16__are_near_those_in_fp32(task: Task, folders: Folders) -> None:
    exact, rounded = (measure_dimension(folders, model, task, CORE, 16) for model in (EXACT, ROUNDED))
    assert exact.numbers == rounded.numbers > exact.effective > 1
    assert rounded.effective == pytest.approx(exact.effective, rel=0.2)
    clean, noisy = (measure_noise(folders, model, task, 8) for model in (EXACT, ROUNDED))
    assert noisy.linear == pytest.approx(clean.linear, rel=0.2)


def test_real_recipes__which_back_propagate__are_known() -> None:
    assert {name for name in REAL_RECIPES if is_first_order(name)} == {
        "LoRA",
        "core of forward basis",
        "core of gradient basis",
    }


def test_study__names_that_are_not_known__are_refused_with_those_that_are() -> None:
    with pytest.raises(OperatorError, match="--clients '3': known are 1, 4, 16, 64, 256"):
        REAL_STUDY.only(None, None, "3")
    assert [*REAL_STUDY.only("rte", "LoRA", "1,16").scaling.steps] == [1, 16]
    assert REAL_STUDY.only(None, None, "").scaling.steps == {}


def test_command__a_model_and_a_users_task__writes_results_of_their_own(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "QUICK_STEPS", 2)
    monkeypatch.setattr(recipes, "QUICK_ROWS", 8)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "learning.md").write_bytes((REPOSITORY / "docs/learning.md").read_bytes())
    options = {"model": "embedded:tiny-opt", "task": toml, "work": tmp_path, "write": docs, "jobs": 1}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = CliRunner().invoke(command.main, [*arguments, "--quick", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    measured = json.loads(done.stdout)
    assert measured["model"] == "embedded:tiny-opt bf16"
    assert {each["name"] for each in measured["compared"]} == set(REAL_RECIPES)
    assert {each["clients"] for each in measured["scaled"]} == {1, 4}
    assert set(measured["dimensions"]["mine"]) == {"forward", "gradient"}
    assert json.loads((docs / "learning/real.json").read_text("utf-8")) == measured
    assert sorted(path.name for path in (docs / "learning").iterdir()) == [
        "real-clients.svg",
        "real-mine.svg",
        "real.json",
    ]
    page = (docs / "learning.md").read_text("utf-8")
    assert "| forward start | suggested | " in page and "| 4 | suggested | " in page
    assert "![mine: accuracy against forward rows](learning/real-mine.svg)" in page


def test_page__nothing_was_measured_of_a_real_model__says_so() -> None:
    nothing = Results(model="", seeds=(), noise={}, dimensions={}, compared=(), scaled=(), cheats=(), metric=())
    assert set(map(tuple, real_parts(nothing).values())) == {("Not measured yet.",)}


def test_study__recipe_that_takes_long__runs_on_one_task_or_with_one_seed() -> None:
    first, second = REAL_TASKS["sst2"], REAL_TASKS["rte"]
    assert (REAL_STUDY.seeds_of(first, "MeZO"), REAL_STUDY.seeds_of(second, "MeZO")) == ((0,), ())
    assert REAL_STUDY.seeds_of(first, "gradient basis") == (0,)
    assert REAL_STUDY.seeds_of(second, "forward start") == (0, 1, 2)
    assert REAL_STUDY.seeds_of(first, "trajectory start") == (0, 1, 2)
    assert REAL_STUDY.seeds_of(second, "trajectory start") == ()


def test_designs__known_gradients__capture_what_theory_says() -> None:
    numbers = 20
    same = torch.randn(numbers, generator=torch.Generator().manual_seed(1)).repeat(64, 1)  # examples without noise

    def of(**fields: object) -> float:
        return captured(same, Design(**{"directions": 1, "examples": 1, **fields}), steps_max=4_000)  # type: ignore[arg-type]

    # D random signs in d numbers: E |estimate|^2 = |g|^2 (D - 1 + d) / D, for Rademacher directions; D / d for a frame.
    assert of() == pytest.approx(1 / 20, rel=0.05)
    assert of(directions=8) == pytest.approx(8 / 27, rel=0.05)
    assert of(directions=8, is_orthogonal=True) == pytest.approx(8 / 20, rel=0.05)
    assert of(directions=40, is_orthogonal=True) == pytest.approx(1.0)
    assert of(directions=8, has_variate=True) > of(directions=8)


def test_designs__noisy_examples__more_of_them_help_common_ones_do_not() -> None:
    noisy = torch.randn(256, 4, generator=torch.Generator().manual_seed(1)) + 0.5
    own, common = (captured(noisy, Design(directions=8, examples=2, is_common=common)) for common in (False, True))
    assert own > 1.5 * common


def test_curvature__losses_on_a_parabola__its_slope_curvature_and_best_length() -> None:
    """Two examples a direction, of which one has a slope: half of the slope's square is the other's silence."""
    slope_MDE = torch.tensor([[[0.4, 0.0], [0.0, 0.4]], [[-0.4, 0.0], [0.0, -0.4]]], dtype=torch.float64)
    noiseless = torch.full_like(slope_MDE, 0.2)

    def of(slope_MDE: Tensor) -> Tensor:
        return torch.stack([1 + slope_MDE + 0.05, 1 - slope_MDE + 0.05, torch.ones_like(slope_MDE)], dim=1)

    exact, noisy = (described("here", of(each), message_length=0.5) for each in (noiseless, slope_MDE))
    assert (exact.slope, exact.curvature, exact.signal) == pytest.approx((0.2, 0.1, 1.0))
    assert (exact.spread, exact.rows_to_know, exact.below_zero) == pytest.approx((0, 0, 0))
    assert exact.own_length == pytest.approx(4) and exact.best_length == pytest.approx(4)  # 0.2 / 0.1 in halves
    assert (noisy.slope, noisy.signal, noisy.best_length) == pytest.approx((0.2, 0.0, 0.0))
    assert noisy.own_length == pytest.approx(4)


def test_curvature__embedded_model__slopes_and_curvatures_of_its_losses(task: Task, folders: Folders) -> None:
    recipe = replace(NETWORK, rank=1, calibration_rows=64, directions=2)
    alone, started = measure(folders, EXACT, task, 4, recipe)
    assert [alone.state, started.state] == ["the model alone", "the start"]
    for each in (alone, started):
        assert each.slope > 0 and each.error > 0 and each.rows_to_know > 0 and each.own_length > 0
        assert 0 <= each.below_zero <= 1
    assert alone.slope != started.slope


def test_pool__packed_training_file__holds_no_row_of_the_others(tmp_path: Path) -> None:
    rows = [json.dumps({"sentence": f"film {number} was good", "label": number % 2}) for number in range(40)]
    with gzip.open(tmp_path / "all.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(rows))
    (tmp_path / "tune.jsonl").write_text("\n".join(rows[:10]), "utf-8")
    (tmp_path / "test.jsonl").write_text("\n".join(rows[10:20]), "utf-8")
    names = {"train": "all.jsonl.gz", "tune": "tune.jsonl", "test": "test.jsonl"}
    packed = replace(REAL_TASKS["sst2"], label_words=(" no", " yes"), **names)  # type: ignore[arg-type]
    data = read(Folders(data=tmp_path, models=Path("none")), EXACT, packed, is_test=True)
    training, held = ({each.tokens for each in examples} for examples in (data.examples, data.evaluation_examples))
    assert len(training) == 20
    assert not training & held


def test_clients__renewed_in_every_epoch__starts_add_up_and_their_rows_count(task: Task, folders: Folders) -> None:
    recipe = replace(NETWORK, steps=3, epoch_steps=1, calibration_rows=16, is_renewed=True)
    data, model = read(folders, EXACT, task, is_test=False), load(folders, EXACT)
    clients = Clients(recipe, task, data, model, rate=None, seed=0)
    rows = list(clients.train())
    before = rows[0]
    assert rows == [before, before + 8, 2 * before + 16, 3 * before + 24]
    counts = [len(clients._bases.starts(epoch)) for epoch in range(3)]
    assert counts == sorted(counts) and counts[0] <= 1 < counts[-1], counts
