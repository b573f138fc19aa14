"""Products of 16-bit numbers in fp32: the same numbers, only where they are faster, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sfnode.training.model import quantised, wide_products
from sfnode.training.model.layer_probe import body_of, hidden_states, probe_tokens
from sfnode.training.model.wide_products import WideProducts, first_gain, rows_to_widen, widen
from sfnode.training.shared_model import SharedModel
from tests.training.test_precision import needs_torchao
from tests.training.tiny_architectures import tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

CPU: Final = torch.device("cpu")
X, W, B = (torch.randn(*shape, generator=torch.Generator().manual_seed(3)) for shape in ((700, 32), (24, 32), (24,)))
Q = X[:640].view(2, 4, 80, 32)
PRODUCTS: Final[dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "a layer": (functional.linear, (X, W, B)),
    "a layer of three dimensions": (functional.linear, (X.view(7, 100, 32), W)),
    "a turned layer": (torch.addmm, (B, X, W.t())),
    "onto a result": (lambda y, x, w: y.clone().addmm_(x, w), (X[:, :24], X, W.t())),
    "thin": (lambda x, w: x @ w, (X, W.t())),
    "groups": (torch.bmm, (X.view(7, 100, 32), X.view(7, 32, 100))),
    "attention": (lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
}


class Noting(TorchFunctionMode):
    """Notes the dtypes of the products that really take place."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in wide_products._PRODUCTS:
            self.seen |= {each.dtype for each in args if isinstance(each, Tensor)}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_wide_products__of_each_kind__are_made_in_fp32_and_rounded_once(name: str, dtype: torch.dtype) -> None:
    product, factors = PRODUCTS[name]
    held = [each.to(dtype) for each in factors]
    noting = Noting()
    with noting, WideProducts(1):
        found = product(*held)
    expected = product(*(each.double() for each in held)).to(dtype)
    assert found.dtype is dtype and noting.seen == {torch.float32}
    spacing = torch.finfo(dtype).eps
    assert torch.allclose(found.double(), expected.double(), rtol=1.01 * spacing, atol=1e-5)
    assert (found != expected).float().mean() < 0.02  # a sum in another order may round to the other side


def test_wide_products__few_rows_or_fp32__stay_as_they_are() -> None:
    noting, x, w = Noting(), X.bfloat16(), W.bfloat16()
    with noting, WideProducts(16):
        functional.linear(x[:15], w)
    assert noting.seen == {torch.bfloat16}
    with noting, WideProducts(16):
        assert torch.equal(functional.linear(X, W), X @ W.t())


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_model__widened__computes_its_own_numbers_and_holds_its_own_weights(name: str) -> None:
    plain, model = (cast(Any, tiny_model(name)).to(torch.bfloat16) for _ in range(2))
    widen(body_of(model), 1)
    tokens, noting = probe_tokens(plain, 4, 6), Noting()
    with noting, torch.inference_mode():
        found = hidden_states(model, tokens)
    expected = hidden_states(plain, tokens)
    assert torch.bfloat16 not in noting.seen
    assert (found - expected).abs().max() <= 0.05 * expected.abs().max()
    assert all(each.dtype is torch.bfloat16 for each in model.parameters())


def test_model__pass_that_fails__leaves_later_products_alone() -> None:
    model = cast(Any, tiny_model("llama")).to(torch.bfloat16)
    widen(body_of(model), 1)
    last = model.model.layers[-1].mlp.down_proj
    wrong = last.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("no room")))
    with pytest.raises(RuntimeError, match="no room"):
        hidden_states(model, probe_tokens(model, 2, 3))
    wrong.remove()
    noting = Noting()
    with noting:
        functional.linear(X.bfloat16(), W.bfloat16())
    assert noting.seen == {torch.bfloat16}


@needs_torchao
def test_int8__widened__multiplies_with_the_weight_in_fp32_and_int4_keeps_its_own_product() -> None:
    x, weight = torch.randn(64, 64).bfloat16(), torch.randn(32, 64).bfloat16()
    int8, int4 = (quantised.quantised_weight(name, CPU, weight) for name in ("int8", "int4"))
    plain = functional.linear(x.float(), cast(Any, int8).dequantize().float())
    with WideProducts(1):
        assert torch.allclose(functional.linear(x, int8).float(), plain, rtol=0.01, atol=0.05)
        fours = functional.linear(x, int4)
    assert torch.equal(fours, functional.linear(x, int4))


@pytest.mark.parametrize(
    ("gains", "rows"),
    [
        ({1: 0.5, 4: 1.4, 16: 3.0, 256: 7.0}, 4),
        ({1: 1.3, 4: 1.1, 16: 1.5, 256: 1.5}, 16),  # one row alone: perhaps a busy moment
        ({1: 0.5, 4: 0.4, 16: 0.5, 256: 1.1}, None),
        ({1: 2.0, 4: 2.0, 16: 2.0, 256: 2.0}, 1),
    ],
)
def test_first_gain__of_measured_products__is_the_size_from_which_on_all_gain(
    gains: dict[int, float], rows: int | None
) -> None:
    assert first_gain(sorted(gains.items(), reverse=True)) == rows


@pytest.mark.parametrize(("usual", "disturbed", "products", "rows"), [(0.3, 7.0, 5, None), (7.0, 0.3, 1, 1)])
def test_rows_to_widen__busy_moment_while_it_measures__changes_nothing(
    usual: float, disturbed: float, products: int, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor with bf16 was taken for one without, and the node took three times as long for all its life."""
    moments = iter([disturbed] * products)  # of one look
    monkeypatch.setattr(wide_products, "product_seconds", lambda _rows, _weight: (next(moments, usual), 1.0))
    rows_to_widen.cache_clear()
    assert rows_to_widen(torch.bfloat16, "cpu", 1) == rows
    rows_to_widen.cache_clear()


def test_rows_to_widen__processor_that_is_fast_in_16_bits__measures_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of five sizes left 0.6 MB of kernels in a worker for good, where the first one had said it all."""
    seen: list[int] = []

    def measured(rows: int, _weight: Tensor) -> tuple[float, float]:
        seen.append(rows)
        return 1.0, 7.0

    monkeypatch.setattr(wide_products, "product_seconds", measured)
    rows_to_widen.cache_clear()
    assert rows_to_widen(torch.bfloat16, "cpu", 1) is None
    rows_to_widen.cache_clear()
    assert set(seen) == {256}


def test_shared_model__on_a_processor_that_is_slow_in_16_bits__widens_the_products_of_its_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {torch.bfloat16: 7.0, torch.float16: 0.1}
    monkeypatch.setattr(wide_products, "product_seconds", lambda _rows, weight: (seconds[weight.dtype], 1.0))
    rows_to_widen.cache_clear()
    models: list[nn.Module] = [cast(Any, tiny_model("llama")).to(dtype) for dtype in (torch.bfloat16, torch.float16)]
    slow, fast = (SharedModel(cast(Any, model)) for model in models)
    rows_to_widen.cache_clear()
    assert slow.is_widened and not fast.is_widened
    noting = Noting()
    with noting, torch.inference_mode():
        hidden_states(slow.model, probe_tokens(slow.model, 2, 3))
    assert noting.seen == {torch.float32}
    assert rows_to_widen(torch.float32, "cpu", 1) is rows_to_widen(torch.bfloat16, "cuda", 1) is None
