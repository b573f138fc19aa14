"""Make what is measured: models of published shapes, runs and data of meaningless numbers, a step, forward passes."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, PretrainedConfig, PreTrainedModel

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.limits import DIRECTIONS_MAX
from protocol.run import FORMAT, CoreKind, Manifest, TaskKind, TensorSpec, checked, no_model
from protocol.schema import to_plain
from protocol.state import CoefficientLayout
from protocol.subspace import Bases, Basis, BasisContent, Int8Array, words
from sfnode.training.calibration import moving_tensors
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, RowBatch, TaskData

Action = Callable[[], object]


def _opt(hidden: int, layers: int, heads: int) -> OPTConfig:
    return OPTConfig(
        hidden_size=hidden,
        word_embed_proj_dim=hidden,
        ffn_dim=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
    )


# OPT: Zhang et al., arXiv 2205.01068, table 1; SmolLM2: Ben Allal et al., arXiv 2502.02737
SHAPES: dict[str, PretrainedConfig] = {
    "opt-tiny": _opt(64, 2, 2),
    "opt-125m": _opt(768, 12, 12),
    "opt-1.3b": _opt(2_048, 24, 32),
    "opt-2.7b": _opt(2_560, 32, 32),
    "opt-6.7b": _opt(4_096, 32, 32),
    "smollm2-135m": LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1_536,
        tie_word_embeddings=True,
    ),
}
_VOCABULARY_MIN = 49_152
_WEIGHTS_STD = 0.02  # OPT's own initialisation
_STREAM = 0  # of the generator; the keys below separate its uses
_CLIP = 1 << 10
_METHOD = """{
    "epoch_steps": 1024, "basis_sha256": "", "core_rows": 0, "noise_rows": 0, "energy_max": 0,
    "scalar": "raw", "epsilon_exp": -10, "sides": 2, "shares": 1, "local_steps": 1, "alpha_exp": -30, "quantum_exp": -3
}"""  # slopes of random models are large: with this quantum_exp, no scalar is at the clip
_DENSE_METHOD = """{
    "epoch_steps": 1, "basis_sha256": "%s", "core_rows": 1, "noise_rows": 128,
    "energy_max": 1048576, "epsilon_exp": 0, "sides": 1, "clip": 127
}""" % ("00" * 32)  # there is no file
_DENSE_RANK = 64
_TASK = """{
    "kind": "classification", "template": "{text}", "completion": "", "objective": "loss", "label_words": ["a", "b"],
    "data": "private", "data_sha256": ""
}"""
_RUN = """{
    "name": "bench", "steps": 4096, "staleness": 1, "authors_max": 1024, "admission": {"kind": "open", "pow_bits": 0},
    "schedule": {"kind": "constant", "weight_start": 1, "weight_end": 1}
}"""
# The layers of these shapes that `calibration.writers_of` finds in a loaded model
_WRITING = ("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight")
_DENSE_EXP = -7  # of each side, whose entries are then below one


class BenchBasis(StrEnum):
    """Kinds of bases that the measured run can train in."""

    RANDOM = "random"  # bases drawn anew in each epoch, rank 32, as in `sfnode init --plain` and the paper
    DENSE = "dense"  # a dense core of one contrast in the layers that `sfnode init` chooses


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Return a model of the given shape with random weights, made in place: it takes no memory but its own.

    OperatorError for an unknown shape.
    """
    made = meta_model(shape).to(dtype).to_empty(device=device)
    made.tie_weights()
    rotary = getattr(made.base_model, "rotary_emb", None)
    if rotary is not None:  # its frequencies are in no file, so they are lost with the meta device
        with torch.device(device):
            made.base_model.rotary_emb = type(rotary)(made.config)
    generator = torch.Generator(device=device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=_WEIGHTS_STD, generator=generator)
            else:
                parameter.fill_(float(name.endswith("weight")))  # norms' weights are ones; biases zeros
    result: PreTrainedModel = made.eval().requires_grad_(False)
    return result


def meta_model(shape: str) -> Any:
    """Return a model of the given shape on the meta device. OperatorError: it is not known."""
    if shape not in SHAPES:
        raise OperatorError(f"shape {shape!r}: known are {', '.join(SHAPES)}")
    models: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return models.from_config(copy.deepcopy(SHAPES[shape]))


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return another model object with the same parameters: its modules can change without touching ``model``."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def bench_manifest(
    tensors: Sequence[TensorSpec],
    *,
    rows: int = 16,
    tokens: int = 64,
    directions: int = 8,
    core: CoreKind = CoreKind.CANONICAL,
    rank: int = 32,
) -> Manifest:
    """Return a run with raw scalars, in random bases; ``directions`` is halved until it divides the rows.

    With a dense core, directions are rows.
    """
    is_dense = core is CoreKind.DENSE
    if is_dense and rows > DIRECTIONS_MAX:
        raise OperatorError(f"--rows {rows}: a dense message stands for at most {DIRECTIONS_MAX}; take another --basis")
    directions = rows if is_dense else directions
    while rows % directions:
        directions //= 2
    plain = json.loads(_RUN) | {
        "format": FORMAT,
        "owner": Signer(b"benchmark".ljust(32, b".")).author.hex(),
        "model": to_plain(no_model("local:bench"), as_rows=False),
        "tensors": [to_plain(each, as_rows=False) for each in tensors],
        "task": json.loads(_TASK) | {"max_tokens": max(tokens, 4), "batch_rows": rows},
        "method": json.loads(_METHOD)
        | {"rank": rank, "core": core.value, "directions": directions, "clip": _CLIP}
        | (json.loads(_DENSE_METHOD) if is_dense else {}),
    }
    return checked(plain)


def setting(
    shape: str, size: tuple[int, int], dtype: str, basis: BenchBasis, device: torch.device
) -> dict[str, object]:
    """Return what is measured, and on what, as JSON fields."""
    rows, tokens = size
    subject = {"shape": shape, "rows": rows, "tokens": tokens, "dtype": dtype, "basis": basis.value}
    return {**subject, "device": device.type, "threads": torch.get_num_threads()}


def bench_bases(tensors: Sequence[TensorSpec], basis: BenchBasis, *, size: tuple[int, int]) -> Bases:
    """Return a run of two epochs in ``basis``; ``size``: rows and tokens of a batch."""
    if basis is BenchBasis.DENSE:
        return _dense_bases(_dense_manifest(tensors, size, has_label_words=True))
    manifest = bench_manifest(tensors, rows=size[0], tokens=size[1])
    return Bases(replace(manifest, steps=2 * manifest.method.epoch_steps))


def reward_bases(tensors: Sequence[TensorSpec], rule: str, *, size: tuple[int, int]) -> Bases:
    """Return a run with a dense core that rewards answers; ``size``: answers of a message, tokens of a whole text."""
    manifest = _dense_manifest(tensors, size, has_label_words=False)
    task = replace(manifest.task, kind=TaskKind.REWARD, completion=rule, label_words=())
    return _dense_bases(checked(to_plain(replace(manifest, task=task), as_rows=False)))


def _dense_manifest(tensors: Sequence[TensorSpec], size: tuple[int, int], *, has_label_words: bool) -> Manifest:
    writers = [tensor for tensor in tensors if tensor.name.endswith(_WRITING)]
    moving = moving_tensors(writers, has_label_words=has_label_words)
    return bench_manifest(moving, rows=size[0], tokens=size[1], core=CoreKind.DENSE, rank=_DENSE_RANK)


def _dense_bases(manifest: Manifest) -> Bases:
    tensors = manifest.tensors

    def side(length: int, columns: int) -> Int8Array:
        drawn = words(3, length * columns, _STREAM).astype(np.int64) % 255 - 127
        return drawn.astype(np.int8).reshape(length, columns)

    u = side(tensors[0].rows, 1)
    of_tensors = [Basis(u=u, v=side(each.cols, _DENSE_RANK), u_exp=_DENSE_EXP, v_exp=_DENSE_EXP) for each in tensors]
    return Bases(manifest, BasisContent(target=u, target_exp=_DENSE_EXP, tensors=tuple(of_tensors)))


def random_data(rows: int, tokens: int) -> TaskData:
    """Return ``rows`` prompts of ``tokens`` tokens each."""
    drawn = 4 + words(1, rows * tokens, _STREAM).astype(np.int64) % (_VOCABULARY_MIN - 4)
    lines = drawn.reshape(rows, tokens).tolist()
    examples = tuple(Example(tokens=tuple(line), label=index % 2) for index, line in enumerate(lines))
    return TaskData(label_tokens=(4, 5), examples=examples)


def some_coefficients(manifest: Manifest, epoch: int) -> np.typing.NDArray[np.int64]:
    """Return arbitrary coefficients for every tensor, int64[layout.size]."""
    size = CoefficientLayout(manifest).size
    return words(2 + epoch, size, _STREAM).astype(np.int64) % (2 * _CLIP) - _CLIP


def first_step(model: PreTrainedModel, bases: Bases, data: TaskData, epoch: int = 1) -> Action:
    """Return an estimate at the first step of ``epoch``; that epoch and all before it have coefficients."""
    session = Estimator(SharedModel(model), bases, data)
    for each in range(epoch + 1):
        session.set_coefficients(each, some_coefficients(bases.manifest, each))
    return lambda: session.estimate(1, epoch * bases.manifest.method.epoch_steps)


def forward(model: PreTrainedModel, rows: RowBatch, *, sides: int = 2, has_head: bool = False) -> Action:
    """Return an action that runs the model's body, or with logits at every token, over all sides' rows in one pass."""
    all_NT, module = rows.tokens.repeat(sides, 1), model if has_head else model.base_model

    @torch.inference_mode()
    def run() -> None:
        module(input_ids=all_NT, use_cache=False)

    return run
