"""The laboratory of decision 32 on a tiny Llama: its passes are the model's, and a run of it learns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from transformers import PreTrainedModel

from benchmarks.learn import plain
from benchmarks.learn.problems import REAL_TASKS, Folders, ModelChoice, read
from benchmarks.learn.recipes import LORA, REAL_RECIPES
from benchmarks.one_pass import __main__ as command, pooled
from benchmarks.one_pass.basis import CoreBasis, make_basis
from benchmarks.one_pass.laboratory import CALIBRATION_ROWS, make_laboratory
from benchmarks.one_pass.layers import LateLayers
from benchmarks.one_pass.membership import attack
from benchmarks.one_pass.pooled import pooled_lora
from benchmarks.one_pass.training import Rule, calibrated, even_shards, private_shards, train
from sfnode.demo import data_file
from sfnode.training.task import Example
from tests.benchmarks.tiny_rows import ROWS, WORDS, tiny_examples, tiny_llama


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_llama()


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return tiny_examples()


@pytest.fixture(scope="module")
def layers(model: PreTrainedModel, examples: list[Example]) -> LateLayers:
    return LateLayers(model, examples, WORDS, first=1)


@pytest.fixture(scope="module")
def basis(layers: LateLayers) -> CoreBasis:
    return make_basis(layers, torch.arange(ROWS), rank=8)


def whole_model(model: PreTrainedModel, examples: list[Example]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([row.tokens])).logits[0, -1, list(WORDS)] for row in examples])


def test_pass__nothing_moved__is_that_of_the_whole_model(
    model: PreTrainedModel, examples: list[Example], layers: LateLayers
) -> None:
    found = layers.run(torch.arange(ROWS)).logits
    torch.testing.assert_close(found, whole_model(model, examples), rtol=1e-4, atol=1e-5)


def test_pass__core_moved__is_that_of_the_model_with_the_product_in_its_weights(
    examples: list[Example], layers: LateLayers, basis: CoreBasis
) -> None:
    C = torch.randn(basis.zero().shape, generator=torch.Generator().manual_seed(1)) / 10
    moved = tiny_llama()
    slots = [slot for layer in moved.model.layers[1:] for slot in (layer.self_attn.o_proj, layer.mlp.down_proj)]
    for slot, core, v in zip(slots, C[0], basis.V, strict=True):
        slot.weight.data += basis.U @ core @ v.T
    found = layers.run(torch.arange(ROWS), basis.term(C, torch.zeros(ROWS, dtype=torch.int64))).logits
    torch.testing.assert_close(found, whole_model(moved, examples), rtol=1e-4, atol=1e-5)


def test_basis__curvature__bounds_that_of_the_direct_path(layers: LateLayers, basis: CoreBasis) -> None:
    """With even predictions the curvature along the worst direction is what the basis says, and never more."""
    passed = layers.run(torch.arange(ROWS))
    moves = torch.cat([x @ v for x, v in zip(passed.inputs, basis.V, strict=True)], 1)
    covariance = torch.eye(len(WORDS)) / len(WORDS) - torch.ones(len(WORDS), len(WORDS)) / len(WORDS) ** 2
    along = basis.contrasts.T @ covariance @ basis.contrasts
    torch.testing.assert_close(along, torch.eye(len(WORDS) - 1), rtol=1e-4, atol=1e-4)
    largest = torch.linalg.eigvalsh((moves.T @ moves / ROWS).double())[-1]
    assert float(largest) == pytest.approx(basis.curvature, rel=1e-5)


def test_run__labels_in_the_last_token__are_learnt_by_one_and_by_many(layers: LateLayers, basis: CoreBasis) -> None:
    rows, pool = torch.arange(ROWS), np.arange(ROWS)
    scale = calibrated(layers, basis, rows, seed=0)
    before = train(layers, layers, basis, scale, [pool], rounds=1, seed=0, rule=Rule(rate=0.0))[-1]
    for authors, rounds in ((1, 40), (8, 20)):
        after = train(layers, layers, basis, scale, even_shards(pool, authors), rounds=rounds, seed=0)[-1]
        assert after.rows == authors * rounds * 16
        assert after.loss[0] < 0.9 * before.loss[0]


def test_run__judged__learns_from_right_and_wrong_alone(layers: LateLayers, basis: CoreBasis) -> None:
    """The other rule would not do: with all labels wrong, no answer is right, and nothing moves."""
    scale, shards = calibrated(layers, basis, torch.arange(ROWS), seed=0), even_shards(np.arange(ROWS), 8)
    before = train(layers, layers, basis, scale, shards, rounds=1, seed=0, rule=Rule(rate=0.0))[-1]
    after = train(layers, layers, basis, scale, shards, rounds=60, seed=0, rule=Rule(is_judged=True))[-1]
    assert after.accuracy[0] > before.accuracy[0] + 10, (before, after)
    wrong = copy(layers)
    wrong.labels = torch.full_like(layers.labels, -1)
    (unmoved,) = train(wrong, layers, basis, scale, shards, rounds=4, seed=0, rule=Rule(is_judged=True))
    assert unmoved.loss == before.loss


def test_run__alone__each_author_has_a_model_of_its_own(layers: LateLayers, basis: CoreBasis) -> None:
    scale = calibrated(layers, basis, torch.arange(ROWS), seed=0)
    shards = [np.flatnonzero(layers.labels.numpy() == label) for label in (0, 1)]
    (look,) = train(layers, layers, basis, scale, shards, rounds=12, seed=0, alone=True)
    assert len(look.accuracy) == 2
    assert max(look.accuracy) < 65  # each has learnt to say one label


def test_private_shards__skewed__share_no_row_and_lean_to_one_label() -> None:
    labels = np.arange(400) % 2
    shards = private_shards(labels, np.arange(400), np.random.default_rng(0), members=4, rows=50, skew=0.9)
    assert len({row for shard in shards for row in shard.tolist()}) == 200
    for member, shard in enumerate(shards):
        assert (labels[shard] == member % 2).mean() > 0.8


def test_attack__messages_of_one_row__names_row_and_label(layers: LateLayers, basis: CoreBasis) -> None:
    every = torch.arange(ROWS)
    scale = calibrated(layers, basis, every, seed=0)
    one, many = (attack(layers, basis, scale, every, np.random.default_rng(0), rows) for rows in (1, 16))
    assert one.rows_right > 0.9 and one.labels_right > 0.9
    assert 16 / ROWS < many.rows_right < one.rows_right


def test_command__rounds_seeds_and_members__are_those_of_the_options(
    model: PreTrainedModel, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = LateLayers(model, [examples[row % ROWS] for row in range(CALIBRATION_ROWS + ROWS)], WORDS, first=1)
    given: list[tuple[int, int]] = []

    def lora(_folders: Folders, _task: object, rows: list[Example], seed: int) -> dict[str, object]:
        given.append((len(rows), seed))
        return {"0.001": {}}

    monkeypatch.setattr(Folders, "check", lambda *_: None)
    monkeypatch.setattr(command, "late_layers", lambda *_, **__: (repeated, repeated))
    monkeypatch.setattr(command, "make_laboratory", partial(make_laboratory, rank=8))
    monkeypatch.setattr(command, "_MEMBER_ROWS", 4)
    monkeypatch.setattr(command, "pooled_lora", lora)
    arguments = ["--device", "cpu", "--authors", "2", "--rounds", "4", "--seeds", "0,2", "--members"]
    done = CliRunner().invoke(command.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["seed"] for each in found] == [0, 2] and {each["card"] for each in found} == {""}
    assert [look["rows"] for look in found[0]["authors_2"]] == [32, 64, 128]
    assert given == [(64, 0), (64, 2)]


def _counted(taken: list[int], *given: object) -> Iterator[int]:
    for rows in plain.train_back(*given):  # type: ignore[arg-type]
        taken.append(rows)
        yield rows


def test_pooled_lora__three_passes_over_the_rows__learns_at_each_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = ModelChoice(reference="embedded:tiny-opt")
    monkeypatch.setattr(pooled, "SMOLLM2", tiny)
    names = {
        name: str(data_file(split=split)) for name, split in (("train", "train"), ("tune", "eval"), ("test", "eval"))
    }
    words = {"label_words": (" no", " yes"), "test_rows": 24}
    task = replace(REAL_TASKS["sst2"], **names, **words)  # type: ignore[arg-type]
    folders = Folders(data=data_file(split="train").parent, models=data_file(split="train").parent)
    rows = read(folders, tiny, task, is_test=True).examples[:64]
    taken: list[int] = []
    monkeypatch.setattr(pooled, "train_back", partial(_counted, taken))
    found = pooled_lora(folders, task, rows, seed=0)
    assert [*found] == [f"{rate:g}" for rate in REAL_RECIPES[LORA].rates]
    assert taken[-1] == 3 * len(rows)
    assert found["0.001"]["loss"] < found["0.0003"]["loss"]  # type: ignore[operator]
