"""The model before anything of it is loaded: its files, what device and torch there are, what memory it will take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from protocol.errors import OperatorError
from protocol.limits import RECORDS_IN_MEMORY_MAX, SPAN_STEPS
from protocol.run.manifest import Manifest, ModelSpec, coefficient_count
from protocol.run.method import BasisKind
from protocol.schema import from_plain_untrusted
from sfnode import demo
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.run.data_files import EMBEDDED
from sfnode.worker.device_report import DeviceReport

_CHUNK_BYTES: Final = 1 << 22
_HEADER_BYTES_MAX: Final = 100 << 20  # safetensors' own bound
_TORCH_S: Final = 90.0  # its first import from a cold disk takes half a minute
_BYTES: Final = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 2.0, "int8-fp32": 4.0, "int4": 2.0}
_LINEAR_BYTES: Final = {"int8": 1.05, "int8-fp32": 1.05, "int4": 0.625}  # with their scales
_PROGRAM_BYTES: Final = 600 << 20  # daemon and worker with their libraries, before model and ledger
_RECORD_BYTES: Final = 205  # in memory, beside the record's own bytes above 110 (docs/scale.md)
_BUCKET_BYTES: Final = 1_100  # docs/scale.md
_AUTHORS_GUESSED: Final = 16


# --- files


def model_folder(reference: str, revision: str) -> Path | None:
    """Where the model lies on this disk; None for one of the hub that is not in its cache.

    OperatorError when there is no such folder.
    """
    if reference.startswith(EMBEDDED):
        return demo.model_folder(reference.removeprefix(EMBEDDED))
    path = Path(reference).expanduser()
    if path.is_dir():
        return path
    if reference.startswith((".", "/", "~")) or reference.count("/") != 1:
        raise OperatorError(f"model {reference!r}: no such folder")
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    folder = cache / f"models--{reference.replace('/', '--')}" / "snapshots" / revision
    return folder if revision and folder.is_dir() else None


def check_files(folder: Path | None, spec: ModelSpec, is_over: Callable[[], bool]) -> Finding:
    """Whether every file of the model is there with the run's hash; ``is_over``: nobody waits any more."""
    name = "model files"
    if folder is None:
        text = f"{spec.id} is not on this disk yet"
        return warning(name, text, "`sfnode join` downloads it; or give a folder with a copy: --model FOLDER")
    for wanted in (*spec.weights, *spec.tokenizer):
        path = folder / wanted.name
        if not path.is_file():
            return fail(name, f"{path} is missing", f"get all files of {spec.id}, revision {spec.revision or 'any'}")
        if _hash(path, is_over) != wanted.sha256:
            text = f"{path} is not the run's file: another SHA-256 than {wanted.sha256[:16]}..."
            return fail(name, text, f"get it again, of {spec.id}, revision {spec.revision or 'any'}")
    return ok(name, f"{len(spec.weights) + len(spec.tokenizer)} files in {folder} have the run's hashes")


def _hash(path: Path, is_over: Callable[[], bool]) -> str:
    hasher = sha256()
    with path.open("rb") as file:
        while not is_over() and (data := file.read(_CHUNK_BYTES)):
            hasher.update(data)
    return hasher.hexdigest()


# --- device


def find_devices() -> DeviceReport | str:
    """What torch says of this machine, from a process of its own; a text says why it says nothing."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    command = [sys.executable, "-m", "sfnode.training.devices"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TORCH_S, check=False)
    except subprocess.TimeoutExpired:
        return f"torch says nothing within {_TORCH_S:.0f} s: a driver hangs, perhaps"
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return f"torch cannot be used: {(done.stderr.splitlines() or ['it ended without a word'])[-1][:200]}"
    return from_plain_untrusted(DeviceReport, json.loads(lines[-1]), "devices")


def check_device(found: DeviceReport | str, device: str, dtype: str) -> Finding:
    """Whether the device that was asked for is there, and computes in the number format."""
    if isinstance(found, str):
        advice = "pip install 'sfnode[train]'; without it a node can still store, serve and flood: sfnode join --relay"
        return fail("device", found, advice)
    cuda = found.cuda
    chosen = device if device != "auto" else ("cuda" if cuda else "cpu")
    text = f"torch {found.torch}; {_describe(found, chosen)}, {dtype}"
    if chosen == "cuda" and not cuda:
        return fail(
            "device",
            f"{text}: torch finds no CUDA device",
            "install the driver and a CUDA build of torch, or --device cpu",
        )
    if chosen == "mps" and not found.mps:
        return fail("device", f"{text}: torch finds no Apple GPU", "use --device cpu")
    if dtype == "int4" and chosen != "cuda":
        return fail("device", f"{text}: 4 bits are computed on CUDA only", "use --dtype int8")
    if dtype.startswith("int") and find_spec("torchao") is None:
        return fail("device", f"{text}: torchao is not installed", "pip install 'sfnode[quantised]'")
    if dtype == "fp16" and chosen == "cpu":
        return warning("device", f"{text}: slow on a CPU", "use --dtype bf16 or fp32")
    if dtype == "bf16" and chosen == "cuda" and not cuda[0].bf16:
        return warning("device", f"{text}: this card computes bf16 by detours", "use --dtype fp16 or fp32")
    return ok("device", text)


def _describe(found: DeviceReport, chosen: str) -> str:
    if chosen == "cuda" and found.cuda:
        first = found.cuda[0]
        return f"{first.name}, {first.free / 1e9:.1f} of {first.total / 1e9:.1f} GB free"
    return f"{chosen}, {found.threads} threads of {os.cpu_count()} cores"


# --- memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes that a node will take, by what for. Estimates, but for the weights."""

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
    method = manifest.method
    trained = sum(tensor.rows * max(1, tensor.cols) for tensor in manifest.tensors)
    is_folded = manifest.steps > method.epoch_steps and method.basis is BasisKind.RANDOM and dtype not in _LINEAR_BYTES
    return MemoryPlan(
        weights=int(_weight_bytes(folder, [each.name for each in manifest.model.weights], dtype)),
        copies=int(trained * _BYTES[dtype]) if is_folded else 0,
        activations=int(_activation_bytes(manifest, _config(folder), _BYTES[dtype])),
        ledger=_ledger_memory_bytes(manifest) + 16 * coefficient_count(manifest),
    )


def ledger_bytes(manifest: Manifest, authors: int = _AUTHORS_GUESSED) -> int:
    """Disk of the whole run's records, with their index, when so many authors make every step."""
    method = manifest.method
    records = min(authors, manifest.authors_max) * (manifest.steps // method.local_steps)
    return records * (_RECORD_BYTES + 2 * method.scalars)


def _ledger_memory_bytes(manifest: Manifest) -> int:
    """The latest records, and what is kept of each author and span."""
    records = min(ledger_bytes(manifest), RECORDS_IN_MEMORY_MAX * (_RECORD_BYTES + 2 * manifest.method.scalars))
    buckets = min(_AUTHORS_GUESSED, manifest.authors_max) * (manifest.steps // SPAN_STEPS + 1)
    return records + buckets * _BUCKET_BYTES


def _weight_bytes(folder: Path, names: list[str], dtype: str) -> float:
    total = 0.0
    for name in names:
        if name.endswith(".safetensors"):
            total += sum(_tensor_bytes(key, row, dtype) for key, row in _header(folder / name).items())
    return total


def _tensor_bytes(key: str, row: Any, dtype: str) -> float:
    shape = row.get("shape") if isinstance(row, dict) else None
    if not isinstance(shape, list):
        return 0.0  # the metadata
    count = 1
    for size in shape:
        count *= size if isinstance(size, int) else 0
    is_linear = len(shape) == 2 and not any(part in key for part in ("embed", "lm_head", "wte", "wpe"))
    return count * (_LINEAR_BYTES.get(dtype, _BYTES[dtype]) if is_linear else _BYTES[dtype])


def _header(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _HEADER_BYTES_MAX:
                raise ValueError("its header is too long")
            header = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{path} is no safetensors file: {error}") from None
    return header if isinstance(header, dict) else {}


def _config(folder: Path) -> dict[str, int]:
    try:
        plain = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{folder / 'config.json'} cannot be read: {error}") from None
    return {key: value for key, value in plain.items() if isinstance(value, int)} if isinstance(plain, dict) else {}


def _activation_bytes(manifest: Manifest, config: dict[str, int], size: float) -> float:
    """Of the widest layer: residual, query, key, value and attention's output; both sides of the MLP; then the scores
    of the tokens that are read, in fp32. Besides, the bases of an epoch.

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
        text = f"{plan.on_device / 1e9:.1f} GB wanted of the card, {device_free / 1e9:.1f} GB free there: {plan}"
        return fail("memory plan", text, advice)
    if free is None:
        return unknown("memory plan", f"about {here / 1e9:.1f} GB: {plan}; this system does not say what is free")
    text = f"about {here / 1e9:.1f} GB of {free / 1e9:.1f} GB free: {plan}"
    if here > free:
        return fail("memory plan", text, advice)
    if here > 0.8 * free:
        return warning("memory plan", text, advice)
    return ok("memory plan", text)
