"""The output head: in 16 bits it is widened a part at a time, with the results of the whole."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import Tensor, nn

from sfnode.training.model import LogitScale, PassContext
from sfnode.training.task import OutputHead, scoring

WIDTH, ENTRIES = 8, 40  # five words at a time


@pytest.mark.parametrize("words", [slice(None), slice(3, 40), torch.tensor([7, 2, 2, 60, 1, 5, 9])])
@pytest.mark.parametrize("has_bias", [True, False])
def test_output_head__16_bits__is_widened_a_part_at_a_time(
    words: Tensor | slice, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole head in fp32 took 640 MB more with Gemma 3 270M, and five times as long."""
    linear = nn.Linear(WIDTH, 61, bias=has_bias).to(torch.bfloat16).requires_grad_(False)
    head = OutputHead(linear, "head", PassContext(), LogitScale(factor=2.0))
    hidden, wide, product = torch.randn(3, WIDTH), copy.deepcopy(linear).float(), nn.functional.linear
    expected = wide(hidden)[:, words] * 2
    sizes: list[int] = []
    made: list[weakref.ref[Tensor]] = []

    def noted(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        assert not any(part() is not None for part in made), "logits are held twice when they are joined in the end"
        sizes.append(weight.numel())
        part = product(inputs, weight, bias)
        made.append(weakref.ref(part))
        return part

    monkeypatch.setattr(scoring, "WIDENED_MAX", {"cpu": ENTRIES})
    monkeypatch.setattr(nn.functional, "linear", noted)
    assert torch.allclose(head.logits(hidden, None, words), expected, rtol=1e-5, atol=1e-6)
    assert max(sizes) == ENTRIES
    assert sum(sizes) == expected.shape[1] * WIDTH
    for side in (torch.randn(WIDTH, 2), torch.randn(WIDTH)):
        moved = wide.weight * side if side.ndim == 1 else wide.weight @ side
        assert torch.allclose(head.of_stream(words, side), moved[words] * 2, rtol=1e-5, atol=1e-6)


def test_output_head__fp32__is_one_product() -> None:
    linear = nn.Linear(WIDTH, 61).requires_grad_(False)
    hidden = torch.randn(3, WIDTH)
    found = OutputHead(linear, "head", PassContext(), LogitScale()).logits(hidden, None, slice(None))
    assert torch.equal(found, linear(hidden))
