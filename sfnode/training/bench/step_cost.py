"""``sfnode bench step``: compare one estimate with bare forward passes of the same rows."""

from sfnode.training.bench import synthetic_models, timing
from sfnode.training.bench.synthetic_models import BenchBasis
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.task import row_batch


def bench_step(
    shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis, repeats: int, device: str
) -> dict[str, object]:
    """Time a step and forward passes in turn; docs/bench.md explains the figures.

    ``size``: rows on each side, and tokens of a row. A dense core has one side.

    Returns:
        ratio_to_forward: step / forward passes without a head; ratio_to_full_forward: with logits at every token.
    """
    where = choose_device(device)
    model = synthetic_models.random_model(shape, where, loading.choose_dtype(dtype))
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
    return {
        **synthetic_models.setting(shape, size, dtype, basis, where),
        **timing.compared(times, {f"to_{name}": ("step", name) for name in ("forward", "full_forward")}),
    }
