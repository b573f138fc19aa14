"""Plan the memory that training a model will take, from its files alone, and compare it with what is free."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from protocol.errors import OperatorError
from protocol.limits import RECORD_BYTES_IN_MEMORY_MAX, RECORDS_IN_MEMORY_MAX, SPAN_STEPS
from protocol.run import Manifest, TaskKind, TensorSpec, coefficient_count, parse_reward
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.model_files import CONFIG_FILE, INDEX_FILE, find_model_folder, read_config, verify, weight_files
from sfnode.worker_protocol import (
    ANSWER_TOKENS_AT_ONCE,
    PRECISIONS,
    Precision,
    free_disk,
    plan_weights,
    temporary_folder,
)

_HEADER_BYTES_MAX = 100 << 20  # safetensors' own bound
_NODE_BYTES = 120 << 20  # the daemon with its libraries, before the ledger (docs/testing.md: 114 MiB at most)
_WORKER_BYTES = 380 << 20  # the worker with torch and transformers: 346 MiB imported, the rest at first use
_READING_BYTES = 7  # per weight during quantising: as in the file, in bf16, and in fp32
_WIDE_BYTES = 4  # of a number in fp32, in which many processors multiply
_BASES_KEPT = 2  # by the worker: those of the present epoch and of a neighbouring one
_RECORD_BYTES = 205  # in memory, besides the record's own bytes above 110 (docs/scale.md)
_BUCKET_BYTES = 2_300  # docs/scale.md
_AUTHORS_GUESSED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Holds the bytes that a node will take at most, by purpose. All but the weights are estimates.

    Attributes:
        weights: model weights that stay on the device, with room for the largest of the others.
        waiting: weights that do not stay on the device, and their copies for closed epochs.
        least: the smallest ``weights`` that --device-memory can reach; None: it cannot reduce them.
        staged: weights held in main memory until the model is complete and moves to a card.
        reading: extra bytes while the last weight is read.
        closed: the closed epochs at the run's end, folded into copies of weights or thin matrices.
        bases: bases of the epochs that the worker keeps.
        answers: keys and values of the answers that are written at once, in a run that learns from rewards.
        ledger: records, index and coefficients, in the node's own process.
    """

    weights: int
    waiting: int
    least: int | None
    staged: int
    reading: int
    closed: int
    bases: int
    activations: int
    answers: int
    ledger: int

    @property
    def on_device(self) -> int:
        """Return the bytes on the device that runs the forward passes."""
        return self.weights + self.closed + self.bases + self.activations + self.answers

    @property
    def load_peak(self) -> int:
        """Return the bytes of the worker's process while it loads the model."""
        return _WORKER_BYTES + self.weights + self.reading

    @property
    def training_peak(self) -> int:
        """Return the bytes of the worker's process while it trains on the CPU."""
        return _WORKER_BYTES + self.on_device

    @property
    def peak(self) -> int:
        """Return the peak of the worker's process where it trains on the CPU."""
        return max(self.load_peak, self.training_peak)

    @property
    def peak_beside_card(self) -> int:
        """Return the peak of the worker's process in main memory where it trains on a card."""
        return _WORKER_BYTES + max(self.staged + self.reading, self.waiting)

    @property
    def node(self) -> int:
        """Return the bytes of the node's own process."""
        return _NODE_BYTES + self.ledger

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "weights that wait elsewhere": self.waiting,
            "closed epochs": self.closed,
            "bases": self.bases,
            "activations": self.activations,
            "keys and values of answers": self.answers,
            "programs": _WORKER_BYTES + _NODE_BYTES,
            "ledger and state": self.ledger,
        }
        listed = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in parts.items() if size)
        return f"{_gb(self.load_peak)} while the model is loaded, {_gb(self.training_peak)} in training ({listed})"


def plan_memory(manifest: Manifest, folder: Path, dtype: str, device_memory: int | None = None) -> MemoryPlan:
    """Plan the memory that training takes, from config.json and headers; docs/models.md compares it with measurements.

    ``device_memory``: MiB that the weights may take on the device; None: no limit.
    OperatorError: model files cannot be read, or the weights cannot be brought down to ``device_memory``.
    """
    precision, plain = PRECISIONS[dtype], read_config(folder / CONFIG_FILE)
    config = {key: value for key, value in plain.items() if isinstance(value, int)}
    stored = _stored(folder)
    largest = max((each.entries for each in stored if each.is_linear), default=0)
    linear = {each.name: int(each.entries * precision.linear_bytes) for each in stored if each.is_linear}
    others = int(sum(each.entries for each in stored if not each.is_linear) * precision.compute_bytes)
    split = plan_weights(linear, others, dtype, device_memory)
    staged = [each for each in stored if not (each.is_linear and precision.is_quantised)]
    columns = _closed_epochs(manifest) * manifest.method.rank
    closed = int(sum(_folded_bytes(tensor, columns, precision) for tensor in manifest.tensors)) if columns else 0
    closed_waiting = closed * split.waiting_bytes // max(1, others + sum(linear.values()))
    # For each entry while a weight is read; none where it stays as it was read.
    reading = _READING_BYTES if precision.is_quantised else 2 * precision.compute_bytes if split.waiting else 0
    rank, core_rows = manifest.method.rank, manifest.method.core_rows or manifest.method.rank
    basis_entries = sum(core_rows * tensor.outputs + rank * tensor.inputs for tensor in manifest.tensors)
    return MemoryPlan(
        weights=split.on_device,
        waiting=split.waiting_bytes + closed_waiting,
        least=split.least,
        staged=int(sum(each.entries * precision.compute_bytes for each in staged)),
        reading=int(largest * reading),
        closed=closed - closed_waiting,
        bases=int(min(_BASES_KEPT, 1 + _closed_epochs(manifest)) * basis_entries * precision.compute_bytes),
        activations=int(_activation_bytes(manifest, config, largest, precision)),
        answers=int(_answer_bytes(manifest, config, precision)),
        ledger=_ledger_memory_bytes(manifest) + 16 * coefficient_count(manifest),
    )


def foresee_memory(manifest: Manifest, model: str, dtype: str, device_memory: int | None) -> MemoryPlan | None:
    """Plan the memory for the model named ``model``; None where it is not on this disk or cannot be read."""
    try:
        folder = find_model_folder(model, manifest.model.revision)
        return None if folder is None else plan_memory(manifest, folder, dtype, device_memory)
    except OperatorError:
        return None  # loading the model will report the error


def ledger_bytes(manifest: Manifest) -> int:
    """Estimate the disk space of all records of a run and their index, if a usual number of authors make every step."""
    records = min(_AUTHORS_GUESSED, manifest.authors_max) * (manifest.steps // manifest.method.local_steps)
    return records * _bytes_of_record(manifest)


def _bytes_of_record(manifest: Manifest) -> int:
    method = manifest.method
    bits = method.number_bits if method.is_dense else 16
    return _RECORD_BYTES + -(-manifest.numbers * bits // 8)


def _ledger_memory_bytes(manifest: Manifest) -> int:
    """Return the memory for the latest records and for the sums of each author and span."""
    each = _bytes_of_record(manifest)
    records = min(ledger_bytes(manifest), each * min(RECORDS_IN_MEMORY_MAX, RECORD_BYTES_IN_MEMORY_MAX // each))
    buckets = min(_AUTHORS_GUESSED, manifest.authors_max) * (manifest.steps // SPAN_STEPS + 1)
    return records + buckets * _BUCKET_BYTES


class _Stored(NamedTuple):
    name: str
    entries: int
    is_linear: bool


def _stored(folder: Path) -> list[_Stored]:
    found = []
    for file in (folder / name for name in weight_files(folder) if name != INDEX_FILE):
        try:
            for name, shape in verify.tensor_shapes(file, _HEADER_BYTES_MAX):
                found.append(_Stored(name, prod(shape), _is_linear(name, len(shape))))
        except (OSError, ValueError) as error:
            raise OperatorError(f"{file} is not a safetensors file: {error}") from None
    return found


def _is_linear(name: str, dimensions: int) -> bool:
    """Return whether a tensor is a linear layer's weight, by dimensions and name; embeddings and the head are not."""
    return dimensions == 2 and not any(part in name for part in ("embed", "lm_head", "wte", "wpe"))


def _closed_epochs(manifest: Manifest) -> int:
    """Return how many epochs have another basis than the last one, at the run's end."""
    return 0 if manifest.method.is_dense else (manifest.steps - 1) // manifest.method.epoch_steps


def _folded_bytes(tensor: TensorSpec, columns: int, precision: Precision) -> float:
    """Return the bytes of a copy of the weight that takes in ``columns`` directions.

    A quantised weight stays and gets two thin matrices of ``columns`` columns instead, while these are smaller.
    """
    whole = tensor.rows * max(1, tensor.cols)
    is_thin = precision.is_quantised and _is_linear(tensor.name, 2 if tensor.cols else 1)
    return (min(whole, columns * (tensor.rows + tensor.cols)) if is_thin else whole) * precision.compute_bytes


def _activation_bytes(manifest: Manifest, config: dict[str, int], largest: int, precision: Precision) -> float:
    """Estimate the bytes of activations in the widest layer, in a heap that some steps have fragmented.

    They are six tensors of the hidden size (embeddings, residual, query, key, value, output of the attention) and
    three of the MLP's size. A task with whole candidates adds the scores over the vocabulary, in fp32. A quantised
    layer scales its product into another tensor. The ``largest`` weights are unpacked, or widened, for the product.
    """
    method, task = manifest.method, manifest.task
    # Two-sided: two passes for each direction of a share. One-sided: one for each, and one at the weights themselves,
    # which is all that a dense core needs.
    passes = 1 if method.is_dense else 2 * method.shares if method.sides == 2 else method.shares + 1
    rows = task.batch_rows * passes
    hidden = config.get("hidden_size", config.get("n_embd", 1_024))
    inner = config.get("ffn_dim", config.get("intermediate_size", 4 * hidden))
    numbers = rows * task.max_tokens * (6 * hidden + (4 if precision.is_quantised else 3) * inner)
    unpacked = 0 if precision.linear_bytes == _WIDE_BYTES else largest
    scores = 0 if task.kind is TaskKind.CLASSIFICATION else 8 * rows * config.get("vocab_size", 50_000)
    return numbers * precision.compute_bytes + unpacked * _WIDE_BYTES + scores


def _answer_bytes(manifest: Manifest, config: dict[str, int], precision: Precision) -> float:
    """Return the bytes of keys and values of the prompts and answers that a worker has in work at a time."""
    task = manifest.task
    if task.kind is not TaskKind.REWARD:
        return 0
    # `max_tokens` is the room for a prompt with its answer; a prompt's answers are written together
    together = max(ANSWER_TOKENS_AT_ONCE, parse_reward(task.completion).samples * task.max_tokens)
    tokens = min(task.batch_rows * task.max_tokens, together)
    hidden = config.get("hidden_size", config.get("n_embd", 1_024))
    layers = config.get("num_hidden_layers", config.get("n_layer", 32))
    heads = config.get("num_attention_heads", config.get("n_head", 16))
    width = config.get("num_key_value_heads", heads) * config.get("head_dim", hidden // max(1, heads))
    return tokens * 2 * layers * width * precision.compute_bytes


def judge_memory(plan: MemoryPlan, free: int | None, device_free: int | None) -> Finding:
    """Compare the plan with the bytes that are free on the machine and, with CUDA, on the card (``device_free``)."""
    here = plan.node + (plan.peak if device_free is None else plan.peak_beside_card)
    advice = "use a smaller --dtype (bf16, int8), close other programs, or join a run with a smaller model or batch"
    if plan.least is not None and plan.least < plan.weights:
        advice = f"{advice}; or let weights wait elsewhere: --device-memory {-(-plan.least >> 20)} or more"
    if device_free is not None and plan.on_device > device_free:
        text = f"{_gb(plan.on_device)} needed on the card, {_gb(device_free)} free there: {plan}"
        return fail("memory plan", text, advice)
    if device_free is None and plan.waiting > (room := free_disk(folder := temporary_folder())):
        text = f"{_gb(plan.waiting)} of weights are to wait on the disk of {folder}, {_gb(room)} free there: {plan}"
        return fail("memory plan", text, f"name another folder with TMPDIR, or give more --device-memory; {advice}")
    if free is None:
        return unknown("memory plan", f"about {_gb(here)}: {plan}; this system does not say what is free")
    text = f"about {_gb(here)} of {_gb(free)} free: {plan}"
    if here > free:
        return fail("memory plan", text, advice)
    if here > 0.8 * free:
        return warning("memory plan", text, advice)
    return ok("memory plan", text)


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
