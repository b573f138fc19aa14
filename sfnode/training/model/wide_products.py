"""Multiply 16-bit numbers in fp32 where this processor is faster so; what is held in memory stays as it is.

Without instructions for bf16 a processor takes five to seven times as long for a product in bf16 as for one in fp32,
and most take that long in fp16 (docs/bench.md). There, the factors of each product are widened just before it, and its
result is rounded back. The numbers are those of a native product, which adds in fp32, too; only the order of sums
differs. Cards are left alone: their own products have not been compared with these.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sfnode.training.model.folding import is_packed, is_quantised

_HALVES = (torch.bfloat16, torch.float16)
_ROWS_TRIED = (256, 64, 16, 4, 1)  # until one gains too little, as products of few rows do: each takes 0.6 MB for good
_ROWS_AT_ONCE = 512  # are widened at a time: their copies stay in the cache
_SIZE = 768  # inputs and outputs of the layer that is measured
_GAIN_MIN = 1.2  # what is less may be another program's work
_TIMES = 5
_LOOKS = 3


class WideProducts(TorchFunctionMode):
    """Computes products of 16-bit numbers in fp32, and rounds the results, while it is entered."""

    def __init__(self, rows_min: int) -> None:
        """Leave products of fewer than ``rows_min`` rows as they are."""
        super().__init__()
        self._rows_min = rows_min

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute ``func`` of ``args``, in fp32 where it is a product of enough rows."""
        first, product = _PRODUCTS.get(func, (0, None))
        x, weight = (*args, None, None)[first : first + 2] if product else (None, None)
        if _is_half(x) and _is_half(weight) and x.shape[:-1].numel() >= self._rows_min:
            func = product
        return func(*args, **(kwargs or {}))


def _is_half(factor: object) -> bool:
    """Return whether ``factor`` is a tensor of 16-bit numbers that can be widened; int4 has a product of its own."""
    return isinstance(factor, Tensor) and factor.dtype in _HALVES and not is_packed(factor)


def _wide(value: Any) -> Any:
    """Return a 16-bit tensor in fp32, and anything else as it is; int8 takes on the dtype of the other factor."""
    is_plain = isinstance(value, Tensor) and value.dtype in _HALVES and not is_quantised(value)
    return value.float() if is_plain else value


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias, through which derivatives by x come as well. x: [..., I], weight: [O, I]."""
    y: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
    """Keeps the weight as it is held for the way back, and widens it there again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return x weight^T + bias."""
        ctx.save_for_backward(weight)
        wide, wide_bias = _wide(weight), _wide(bias)
        y = x.new_empty(*x.shape[:-1], weight.shape[0])
        parts = (torch.split(each.reshape(-1, each.shape[-1]), _ROWS_AT_ONCE) for each in (x, y))
        for part, result in zip(*parts, strict=True):
            result.copy_(nn.functional.linear(part.float(), wide, wide_bias))
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        """Return the derivative by x."""
        (weight,) = ctx.saved_tensors
        return _linear(slopes[0], weight.t()), None, None


def _add_product_(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x weight to y in place. y: [A, O], x: [A, I], weight: [I, O]."""
    wide = _wide(weight)
    for part, result in zip(torch.split(x, _ROWS_AT_ONCE), torch.split(y, _ROWS_AT_ONCE), strict=True):
        result.copy_(torch.addmm(result.float(), part.float(), wide))
    return y


def _matmul(x: Tensor, other: Tensor) -> Tensor:
    """Return x other, of which both may be batches."""
    if other.ndim == 2:
        return _linear(x, other.t())
    wide = x.float() @ other.float()
    return wide.to(x.dtype)


def _attend(query: Tensor, *others: Any, **settings: Any) -> Tensor:
    factors = [_wide(each) for each in (query, *others)]
    named = {name: _wide(value) for name, value in settings.items()}
    found = nn.functional.scaled_dot_product_attention(*factors, **named)
    return found.to(query.dtype)


# Which argument has the rows, with the weight after it, and what takes the place of the function
_PRODUCTS: Mapping[object, tuple[int, Callable[..., Tensor]]] = {
    nn.functional.linear: (0, _linear),
    torch.addmm: (1, lambda bias, x, weight: _linear(x, weight.t(), bias)),
    Tensor.addmm_: (1, _add_product_),
    nn.functional.scaled_dot_product_attention: (0, _attend),
    **dict.fromkeys((torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm), (0, _matmul)),
}


def widen(body: nn.Module, rows_min: int) -> None:
    """Let ``body`` compute its products of ``rows_min`` rows or more as `WideProducts` does, from now on."""
    modes = ExitStack()

    def begin(*_: object) -> None:
        modes.enter_context(WideProducts(rows_min))

    def end(*_: object) -> None:
        modes.close()

    body.register_forward_pre_hook(begin)
    body.register_forward_hook(end, always_call=True)


@cache
def rows_to_widen(dtype: torch.dtype, device: str, threads: int) -> int | None:
    """Measure from how many rows on products in ``dtype`` are faster in fp32; None: never. Takes up to a second, once.

    Of several looks the middle one counts: a busy moment can slow one kind of product alone, and a wrong answer makes a
    node three times as slow for life. ``device``: its kind; all but "cpu" are taken as fast. ``threads``: of torch.
    """
    if device != "cpu" or dtype not in _HALVES:
        return None
    weight = torch.ones(_SIZE, _SIZE, dtype=dtype)
    looks = []
    for _ in range(_LOOKS):
        seconds = ((rows, product_seconds(rows, weight)) for rows in _ROWS_TRIED)
        looks.append(first_gain((rows, as_held / (in_fp32 or math.inf)) for rows, (as_held, in_fp32) in seconds))
    return sorted(looks, key=lambda rows: rows or math.inf)[_LOOKS // 2]


def first_gain(gains: Iterable[tuple[int, float]]) -> int | None:
    """Return the least number of rows from which on all of ``gains`` are worth having; None if there is none."""
    found = None
    for rows, gain in gains:
        if gain < _GAIN_MIN:
            break
        found = rows
    return found


def product_seconds(rows: int, weight: Tensor) -> tuple[float, float | None]:
    """Return the shortest times of a layer's product with ``rows`` rows: as ``weight`` is held, and in fp32.

    The second is None where `WideProducts` leaves the weight alone.
    """
    x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
    times: dict[Callable[..., Tensor], list[float]] = {nn.functional.linear: []}
    if _is_half(weight):
        times[_linear] = []
    with torch.inference_mode():
        for _ in range(_TIMES):  # in turn: a slow moment of the machine meets both
            for product, found in times.items():
                started = time.perf_counter()
                product(x, weight)
                found.append(time.perf_counter() - started)
    return min(times[nn.functional.linear]), min(times[_linear]) if _linear in times else None
