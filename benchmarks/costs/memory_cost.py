"""Compare the peak memory of a step with that of bare forward passes, and of a training process with its plan."""

from __future__ import annotations

from benchmarks.costs import peak_memory
from benchmarks.costs.peak_memory import Alternative
from sfnode.doctor import plan_memory
from sfnode.training.bench import BenchBasis, synthetic_models
from sfnode.training.devices import choose_device
from sfnode.worker_protocol import FLOATS


def bench_memory(
    shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis, device: str = "cpu"
) -> dict[str, object]:
    """Measure processes that take steps, pass forward, or load a model and train; ``size``: rows and tokens.

    Returns:
        peak_memory_ratio: step / forward, in a run's first epoch; unless it is dense, peak_memory_ratio_later with an
            epoch folded. Neither in quantised dtypes.
        planned, measured: of a training process on the CPU, loading and training, as `sfnode doctor` plans it; ratio:
            planned / measured; ratio_without_program: the same less what Python and its libraries take.
    """
    where = choose_device(device)
    steps = {"": Alternative.STEP, "_later": Alternative.STEP_LATER}
    under = Alternative.FORWARD
    if basis is BenchBasis.DENSE:
        under, steps = Alternative.FORWARD_ONCE, {"": Alternative.STEP_DENSE}
    peak = {}
    if dtype in FLOATS:
        peak = peak_memory.peaks((shape, *map(str, size), dtype, where.type), (under, *steps.values()))
    return {
        **synthetic_models.setting(shape, size, dtype, basis, where),
        **{f"peak_memory_ratio{name}": peak[step] / peak[under] for name, step in steps.items() if peak},
        "peak_bytes": peak,
        **_plan_and_process(shape, size, dtype, basis),
    }


def _plan_and_process(shape: str, size: tuple[int, int], dtype: str, basis: BenchBasis) -> dict[str, object]:
    manifest = synthetic_models.bench_bases(synthetic_models.shape_tensors(shape), basis, size=size).manifest
    with peak_memory.random_files(shape) as folder:
        plan = plan_memory(manifest, folder, dtype)
        found = peak_memory.worker_peaks(folder, shape, size, dtype, basis)
    planned = {"load_peak": plan.load_peak, "training_peak": plan.training_peak}
    program = found["program"]
    return {
        "program": program,
        "planned": planned,
        "measured": {name: found[name] for name in planned},
        "ratio": {name: peak / found[name] for name, peak in planned.items()},
        "ratio_without_program": {name: (peak - program) / (found[name] - program) for name, peak in planned.items()},
    }
