"""Batches of candidates: one row each, or all of an example in one row, in which each sees its prompt and itself."""

from __future__ import annotations

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from sfnode.training.shared_model import SharedModel
from sfnode.training.task.candidates import CandidateBatch, batch_of
from sfnode.training.task.encoding import Example, TaskData
from tests.architectures.verdict import loaded
from tests.support.tiny_models import VOCABULARY, lively, tiny_llama

CPU = torch.device("cpu")
CHOICES = [
    Example(tokens=(5, 6, 9), label=1, candidates=((7,), (8, 9, 3), (8, 4))),
    Example(tokens=(6,), label=0, candidates=((7, 8), (8, 9, 7))),
]


def test_batch__groups_of_unequal_candidates__are_filled_up() -> None:
    """Two groups of two examples with 2 + 3 and 2 + 2 candidates: the second gets a row that counts nowhere."""
    examples = [
        Example(tokens=(5, 6), label=1, candidates=((7,), (8, 9))),
        Example(tokens=(5,), label=2, candidates=((7,), (8,), (9,))),
        Example(tokens=(6,), label=0, candidates=((7,), (8,))),
        Example(tokens=(), label=0, candidates=((7, 8), (8, 9, 7))),
    ]
    batch = batch_of(TaskData(label_tokens=(), pad=1), examples, 2, CPU)
    assert isinstance(batch, CandidateBatch)
    assert batch.tokens.tolist() == [
        [5, 6, 1], [5, 6, 8], [5, 1, 1], [5, 1, 1], [5, 1, 1], [6, 1, 1], [6, 1, 1], [7, 1, 1], [8, 9, 1], [1, 1, 1]
    ]  # fmt: skip
    assert batch.positions.tolist() == [1, 4, 5, 6, 9, 12, 15, 18, 21, 24, 25]
    assert batch.targets.tolist() == [7, 8, 9, 7, 8, 9, 7, 8, 8, 9, 7]
    assert batch.owner.tolist() == [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert batch.turn.tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert (batch.lengths.tolist(), batch.places.tolist()) == (
        [1, 2, 1, 1, 1, 1, 1, 1, 2],
        [0, 1, 3, 4, 5, 6, 7, 9, 10],
    )
    assert (batch.labels.tolist(), batch.sight) == ([1, 2, 0, 0], None)


def test_batch__shared_prompts__each_candidate_sees_its_prompt_and_itself() -> None:
    examples = [
        Example(tokens=(5, 6), label=1, candidates=((7,), (8, 9, 3), (8, 4))),
        Example(tokens=(), label=0, candidates=((7, 8), (8, 9, 7))),
    ]
    batch = batch_of(TaskData(label_tokens=(), pad=1), examples, 2, CPU, is_prompt_shared=True)
    assert isinstance(batch, CandidateBatch)
    assert batch.tokens.tolist() == [[5, 6, 8, 9, 8], [7, 8, 9, 1, 1]]
    assert batch.positions.tolist() == [1, 1, 2, 3, 1, 4, 5, 6, 7]
    assert batch.targets.tolist() == [7, 8, 9, 3, 8, 4, 8, 9, 7]
    assert batch.owner.tolist() == [0, 1, 1, 1, 2, 2, 3, 4, 4]
    assert batch.turn.tolist() == [0, 0, 1, 2, 0, 1, 0, 0, 1]
    assert (batch.lengths.tolist(), batch.places.tolist()) == ([1, 3, 2, 1, 2], [0, 1, 2, 3, 4])
    assert batch.sight is not None
    assert batch.sight.places.tolist()[0] == [0, 1, 2, 3, 2]
    sees = (batch.sight.mask(torch.float64) == 0)[:, 0].int().tolist()
    assert sees[0] == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]
    assert sees[1][:3] == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0]]


@pytest.mark.parametrize("name", ["mamba", "qwen3_5_text", "bloom"])
def test_shared_prompts__layers_that_pass_on_or_find_out_themselves__get_rows_of_their_own(name: str) -> None:
    shared = SharedModel(loaded(name))
    assert not shared.shares_prompts(4)
    batch = shared.batch(TaskData(label_tokens=()), CHOICES)
    assert isinstance(batch, CandidateBatch)
    assert (len(batch.tokens), batch.sight) == (5, None)


def test_shared_prompts__sliding_window__holds_the_whole_row_or_is_not_trusted() -> None:
    """The mask says what tokens see, so a window that is shorter than a row would be forgotten."""
    config = MistralConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, sliding_window=16,
    )  # fmt: skip
    shared = SharedModel(lively(MistralForCausalLM(config)))
    assert (shared.shares_prompts(16), shared.shares_prompts(17)) == (True, False)


def test_shared_prompts__rows__are_one_for_each_example_and_give_the_same_losses() -> None:
    shared, data = SharedModel(tiny_llama()), TaskData(label_tokens=())
    batch = shared.batch(data, CHOICES)
    assert len(batch.tokens) == len(CHOICES)
    with torch.inference_mode():
        found, expected = shared.scores(batch, ()), shared.scores(batch_of(data, CHOICES, 1, CPU), ())
    assert found.loss.tolist() == pytest.approx(expected.loss.tolist(), rel=1e-12)
    assert found.prediction.tolist() == expected.prediction.tolist()
