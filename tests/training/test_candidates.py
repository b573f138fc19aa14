"""Batches of candidates: one row each, or all of an example in one row, in which each sees its prompt and itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    PreTrainedModel,
)

from sfnode.training.model import layer_probe
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.candidates import CandidateBatch, batch_of
from sfnode.training.task.encoding import Example, TaskData
from tests.architectures.verdict import loaded
from tests.support.tiny_models import VOCABULARY, lively, tiny_gpt2, tiny_llama

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
    assert batch.sight.places.tolist() == [[0, 1, 2, 3, 2], [0, 0, 1, 0, 0]]
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


@pytest.mark.parametrize("kind", ["llama", "mamba"])
def test_shared_prompts__candidates_of_one_token__need_nothing_of_the_model(kind: str) -> None:
    """The row is the prompt: no token of a candidate could be seen, so a state in the model is no hindrance."""
    shared, data = SharedModel(loaded(kind)), TaskData(label_tokens=())
    examples = [
        Example(tokens=(5, 6, 9), label=1, candidates=((7,), (8,), (4,))),
        Example(tokens=(6,), label=0, candidates=((7,), (8, 9, 7))),
    ]
    batch, alone = shared.batch(data, examples), batch_of(data, examples, 1, CPU)
    assert isinstance(batch, CandidateBatch)
    assert (batch.tokens.tolist(), batch.sight) == ([[5, 6, 9], [6, 8, 9]], None)
    with torch.inference_mode():
        found, expected = shared.scores(batch, ()), shared.scores(alone, ())
    assert found.loss.tolist() == pytest.approx(expected.loss.tolist(), abs=1e-5)


def test_shared_prompts__rotations_that_change_with_the_length__are_those_of_the_texts() -> None:
    """Filled-up rows had positions of texts that nobody gave: beyond 32, all tokens turned as those of long texts."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 2, "long_factor": [3.0] * 2}
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, rope_parameters={**rope, "factor": 4.0, "original_max_position_embeddings": 32},
    )  # fmt: skip
    shared, data = SharedModel(lively(LlamaForCausalLM(config))), TaskData(label_tokens=())
    choices = (tuple(range(5, 15)), tuple(range(12, 22)), tuple(range(9, 19)))
    examples = [Example(tokens=tuple(range(3, 3 + size)), label=0, candidates=choices) for size in (20, 3)]
    batch = shared.batch(data, examples)
    assert len(batch.tokens) == 2
    with torch.inference_mode():
        found, expected = shared.scores(batch, ()), shared.scores(batch_of(data, examples, 1, CPU), ())
    assert found.loss.tolist() == pytest.approx(expected.loss.tolist(), rel=1e-9)


@pytest.mark.parametrize("is_heard", [True, False])
def test_shared_prompts__one_large_number_in_every_hidden_state__hides_no_wrong_places(
    is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 16 bits, 5 % of the largest number were allowed: as much as the others have, where one is large everywhere."""
    model = tiny_gpt2()
    norm = model.get_submodule("transformer.ln_f")
    norm.get_parameter("bias").data[0] = 200.0
    shared = SharedModel(model.to(torch.bfloat16))
    hidden_states = layer_probe.hidden_states

    def deaf(model: PreTrainedModel, tokens_NT: Tensor, **further: Tensor) -> Tensor:
        if not is_heard:
            further.pop("position_ids", None)
        return hidden_states(model, tokens_NT, **further)

    monkeypatch.setattr(layer_probe, "hidden_states", deaf)
    assert shared.shares_prompts(16) is is_heard


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_prompts__model_that_hears_no_places__passes_candidates_apart(dtype: torch.dtype) -> None:
    """By ALiBi, distances count the candidates between. In 16 bits that was near enough: a loss of 1.05 was 0.85."""
    torch.manual_seed(1)
    model = MptForCausalLM(MptConfig(d_model=128, n_heads=16, n_layers=2, vocab_size=300, max_seq_len=256)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.3)
    assert not SharedModel(model.requires_grad_(False).to(dtype)).shares_prompts(16)


def test_shared_prompts__very_long_rows__are_passed_apart() -> None:
    """What says which tokens see which has width times width numbers."""
    config = MistralConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1 << 17, sliding_window=None,
    )  # fmt: skip
    shared = SharedModel(lively(MistralForCausalLM(config)))
    assert (shared.shares_prompts(4_096), shared.shares_prompts(4_097)) == (True, False)
