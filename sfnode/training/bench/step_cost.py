"""``sfnode bench step``: compare one estimate with bare forward passes of the same rows."""

from sfnode.training.bench import peak_memory, synthetic_models, timing
from sfnode.training.bench.peak_memory import Alternative
from sfnode.training.bench.synthetic_models import BenchBasis
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.task import row_batch

# What a step's peak is divided by, and the steps whose peaks are measured, by the ending of their ratios' names
_DENSE = (Alternative.FORWARD_ONCE, {"": Alternative.STEP_DENSE})
_OTHERS = (Alternative.FORWARD, {"": Alternative.STEP, "_later": Alternative.STEP_LATER})


def bench_step(
    shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis, repeats: int, device: str
) -> dict[str, object]:
    """Time a step and forward passes in turn, and measure the peak memory of both; docs/bench.md explains the figures.

    ``size``: rows on each side, and tokens of a row. A dense core has one side.

    Returns:
        ratio_to_forward: step / forward passes without a head; ratio_to_full_forward: with logits at every token.
        peak_memory_ratio: step / forward, in a run's first epoch; unless it is dense, peak_memory_ratio_later with an
        epoch folded.
    """
    where = choose_device(device)
    model = synthetic_models.random_model(shape, where, loading.compute_dtype(dtype))
    data = synthetic_models.random_data(*size)
    plain, rows = synthetic_models.shared_copy(model), row_batch(data.examples, 0, where)
    bases = synthetic_models.bench_bases(trainable_tensors(model), basis, size=size)
    sides = bases.manifest.method.sides
    actions = {
        "step": synthetic_models.first_step(model, bases, data),
        "forward": synthetic_models.forward(plain, rows, sides=sides),
        "full_forward": synthetic_models.forward(plain, rows, sides=sides, has_head=True),
    }
    times = timing.timed_in_turn(actions, where, repeats)
    under, steps = _DENSE if basis is BenchBasis.DENSE else _OTHERS
    peak = peak_memory.peaks((shape, *map(str, size), dtype, where.type), (under, *steps.values()))
    return {
        **synthetic_models.setting(shape, size, dtype, basis, where),
        **timing.compared(times, {f"to_{name}": ("step", name) for name in ("forward", "full_forward")}),
        **{f"peak_memory_ratio{name}": peak[step] / peak[under] for name, step in steps.items() if peak},
        "peak_bytes": peak,
    }
