"""The memory plan: what training this model will take on this machine, from its files alone, and whether it is free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from protocol.errors import OperatorError
from protocol.limits import RECORDS_IN_MEMORY_MAX, SPAN_STEPS
from protocol.run import BasisKind, Manifest, coefficient_count
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.worker_protocol import PRECISIONS, Precision

_HEADER_BYTES_MAX: Final = 100 << 20  # safetensors' own bound
_PROGRAM_BYTES: Final = 600 << 20  # daemon and worker with their libraries, before model and ledger
_RECORD_BYTES: Final = 205  # in memory, beside the record's own bytes above 110 (docs/scale.md)
_BUCKET_BYTES: Final = 2_300  # docs/scale.md
_AUTHORS_GUESSED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes that a node will take, by purpose. All but the weights are estimates."""

    weights: int
    copies: int
    activations: int
    ledger: int

    @property
    def on_device(self) -> int:
        """What lies where the forward passes run."""
        return self.weights + self.copies + self.activations

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "copies of what is trained": self.copies,
            "activations": self.activations,
            "ledger and state": self.ledger,
            "programs": _PROGRAM_BYTES,
        }
        return ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in parts.items() if size)


def plan_memory(manifest: Manifest, folder: Path, dtype: str) -> MemoryPlan:
    """What training takes; reads the headers of the weight files and config.json. OperatorError for unreadable ones."""
    method, precision = manifest.method, PRECISIONS[dtype]
    trained = sum(tensor.rows * max(1, tensor.cols) for tensor in manifest.tensors)
    is_long = manifest.steps > method.epoch_steps
    is_folded = is_long and method.basis is BasisKind.RANDOM and not precision.is_quantised
    return MemoryPlan(
        weights=int(_weight_bytes(folder, [each.name for each in manifest.model.weights], precision)),
        copies=int(trained * precision.compute_bytes) if is_folded else 0,
        activations=int(_activation_bytes(manifest, _config(folder), precision.compute_bytes)),
        ledger=_ledger_memory_bytes(manifest) + 16 * coefficient_count(manifest),
    )


def ledger_bytes(manifest: Manifest, authors: int = _AUTHORS_GUESSED) -> int:
    """Disk space of the whole run's records, with their index, when so many authors make every step."""
    method = manifest.method
    records = min(authors, manifest.authors_max) * (manifest.steps // method.local_steps)
    return records * (_RECORD_BYTES + 2 * method.scalars)


def _ledger_memory_bytes(manifest: Manifest) -> int:
    """The latest records, and what is kept of each author and span."""
    records = min(ledger_bytes(manifest), RECORDS_IN_MEMORY_MAX * (_RECORD_BYTES + 2 * manifest.method.scalars))
    buckets = min(_AUTHORS_GUESSED, manifest.authors_max) * (manifest.steps // SPAN_STEPS + 1)
    return records + buckets * _BUCKET_BYTES


def _weight_bytes(folder: Path, names: list[str], precision: Precision) -> float:
    total = 0.0
    for name in names:
        if name.endswith(".safetensors"):
            total += sum(_tensor_bytes(key, row, precision) for key, row in _header(folder / name).items())
    return total


def _tensor_bytes(key: str, row: Any, precision: Precision) -> float:
    shape = row.get("shape") if isinstance(row, dict) else None
    if not isinstance(shape, list):
        return 0.0  # the metadata
    count = 1
    for size in shape:
        count *= size if isinstance(size, int) else 0
    is_linear = len(shape) == 2 and not any(part in key for part in ("embed", "lm_head", "wte", "wpe"))
    return count * (precision.linear_bytes if is_linear else precision.compute_bytes)


def _header(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _HEADER_BYTES_MAX:
                raise ValueError("its header is too long")
            header = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{path} is not a safetensors file: {error}") from None
    return header if isinstance(header, dict) else {}


def _config(folder: Path) -> dict[str, int]:
    try:
        plain = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{folder / 'config.json'} cannot be read: {error}") from None
    return {key: value for key, value in plain.items() if isinstance(value, int)} if isinstance(plain, dict) else {}


def _activation_bytes(manifest: Manifest, config: dict[str, int], size: float) -> float:
    """What the widest layer takes: residual, query, key, value and attention's output; both sides of the MLP; then the
    scores of the tokens that are read, in fp32. To this the bases of an epoch are added.

    OPT-125m's shape in fp32, 64 tokens: 3.15 MB a row, measured 3.07.
    """
    method, task = manifest.method, manifest.task
    rows = task.batch_rows * (method.sides * method.shares if method.sides == 2 else method.shares + 1)
    hidden = config.get("hidden_size", config.get("n_embd", 1_024))
    inner = config.get("ffn_dim", config.get("intermediate_size", 4 * hidden))
    bases = method.rank * sum(tensor.rows + tensor.cols for tensor in manifest.tensors) * size
    return rows * (task.max_tokens * (6 * hidden + 2 * inner) * size + 8 * config.get("vocab_size", 50_000)) + bases


def free_memory() -> int | None:
    """Bytes that new programs can have: what the system calls available, within the limit of a container."""
    free = None
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text("ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text("ascii"))
        free = min(free or limit, limit - used)
    return free


def judge_memory(plan: MemoryPlan, free: int | None, device_free: int | None) -> Finding:
    """The plan against what is free, on the machine and, with CUDA, on the card (``device_free``)."""
    here = plan.ledger + _PROGRAM_BYTES + (0 if device_free is not None else plan.on_device)
    advice = "use a smaller --dtype (bf16, int8), close other programs, or join a run with a smaller model or batch"
    if device_free is not None and plan.on_device > device_free:
        text = f"{plan.on_device / 1e9:.1f} GB needed on the card, {device_free / 1e9:.1f} GB free there: {plan}"
        return fail("memory plan", text, advice)
    if free is None:
        return unknown("memory plan", f"about {here / 1e9:.1f} GB: {plan}; this system does not say what is free")
    text = f"about {here / 1e9:.1f} GB of {free / 1e9:.1f} GB free: {plan}"
    if here > free:
        return fail("memory plan", text, advice)
    if here > 0.8 * free:
        return warning("memory plan", text, advice)
    return ok("memory plan", text)
