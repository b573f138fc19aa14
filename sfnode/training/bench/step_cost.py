"""``sfnode bench step``: compare one estimate with bare forward passes of the same rows."""

from __future__ import annotations

from typing import Final

from sfnode.training.bench import memory, subjects, timing
from sfnode.training.bench.subjects import BenchBasis
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.task import row_batch

_EPOCHS: Final = ("", "_later", "_later_published")  # as in `Alternative`


def bench_step(
    shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis, repeats: int, device: str
) -> dict[str, object]:
    """Time a step and forward passes in turn, and measure the peak memory of both; docs/bench.md explains the figures.

    ``size``: rows on each side, and tokens of a row.

    Returns:
        ratio_to_forward: step / forward passes without a head; ratio_to_full_forward: with logits at every token.
        peak_memory_ratio: step / forward, in a run's first epoch; peak_memory_ratio_later with an epoch folded;
        peak_memory_ratio_later_published: the same epoch with a published basis, where nothing is folded.
    """
    where = choose_device(device)
    model, data = subjects.random_model(shape, where, loading.choose_dtype(dtype)), subjects.random_data(*size)
    plain, rows = subjects.shared_copy(model), row_batch(data.examples, 0, where)
    bases = subjects.bench_bases(trainable_tensors(model), basis, size=size)
    actions = {
        "step": subjects.first_step(model, bases, data),
        "forward": subjects.forward_twice(plain, rows),
        "full_forward": subjects.forward_twice(plain, rows, has_head=True),
    }
    times = timing.timed_in_turn(actions, where, repeats)
    peak = memory.peaks((shape, *map(str, size), dtype, where.type))
    return {
        **subjects.setting(shape, size, dtype, basis, where),
        **timing.compared(times, {f"to_{name}": ("step", name) for name in ("forward", "full_forward")}),
        **{f"peak_memory_ratio{name}": peak[f"step{name}"] / peak["forward"] for name in _EPOCHS if peak},
        "peak_bytes": peak,
    }
