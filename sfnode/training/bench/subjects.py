"""Make models, manifests and data to measure with: published shapes, meaningless numbers."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, PretrainedConfig, PreTrainedModel

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.run import (
    DATA_PRIVATE,
    FORMAT,
    AdmissionKind,
    AdmissionSpec,
    BasisKind,
    CoreKind,
    Manifest,
    Method,
    Objective,
    ScalarKind,
    Schedule,
    ScheduleKind,
    TaskKind,
    TaskSpec,
    TensorKind,
    TensorSpec,
    checked,
    no_model,
)
from protocol.schema import to_plain
from protocol.state import CoefficientLayout
from protocol.subspace import Bases, Basis, BasisContent, Start, basis_file, words
from sfnode.training.task import Example, TaskData

_SMOLLM2: Final = "smollm2-135m"
# name -> (hidden, layers, heads, ffn) of OPT (Zhang et al., arXiv 2205.01068, table 1), and of SmolLM2 (Ben Allal et
# al., arXiv 2502.02737)
SHAPES: Final = {
    "opt-tiny": (64, 2, 2, 256),
    "opt-125m": (768, 12, 12, 3_072),
    "opt-1.3b": (2_048, 24, 32, 8_192),
    "opt-2.7b": (2_560, 32, 32, 10_240),
    "opt-6.7b": (4_096, 32, 32, 16_384),
    _SMOLLM2: (576, 30, 9, 1_536),
}
_VOCABULARY_OPT: Final = 50_272
_VOCABULARY_SMOLLM2: Final = 49_152
_POSITIONS: Final = 2_048
_SIGNER: Final = Signer(b"benchmark".ljust(32, b"."))
_RANK: Final = 32  # of random bases
_RANK_PUBLISHED: Final = 1
_DIRECTIONS: Final = 8
_CLIP: Final = 1 << 10
_WEIGHTS_STD: Final = 0.02  # OPT's own initialisation
_STREAM: Final = 0  # of the generator; the keys below separate its uses
# The layers of these shapes that `calibration.residual_stream.writers_of` finds in a loaded model
_WRITING: Final = ("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight")
_START_EXP: Final = -20  # so small that a start of ones hardly moves the weights


class BenchBasis(StrEnum):
    """Kinds of bases that the measured run can train in."""

    RANDOM = "random"  # bases drawn anew in each epoch, rank 32, as in `sfnode init --plain` and the paper
    PUBLISHED = "published"  # one basis of rank 1 for the whole run, in every tensor
    START = "start"  # such a basis in a few tensors, and a start, as `sfnode init` makes them by forward passes


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Return a model of the given shape with random weights, made in place: it takes no memory but its own.

    OperatorError for an unknown shape.
    """
    made = _empty_model(shape).to(dtype).to_empty(device=device)
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


def _empty_model(shape: str) -> Any:
    if shape not in SHAPES:
        raise OperatorError(f"shape {shape!r}: known are {', '.join(SHAPES)}")
    hidden, layers, heads, ffn = SHAPES[shape]
    if shape == _SMOLLM2:
        config: PretrainedConfig = LlamaConfig(
            vocab_size=_VOCABULARY_SMOLLM2,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=3,
            intermediate_size=ffn,
            max_position_embeddings=_POSITIONS,
            tie_word_embeddings=True,
        )
    else:
        config = OPTConfig(
            vocab_size=_VOCABULARY_OPT,
            hidden_size=hidden,
            word_embed_proj_dim=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            ffn_dim=ffn,
            max_position_embeddings=_POSITIONS,
        )
    models: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return models.from_config(config)


def shape_tensors(shape: str) -> tuple[TensorSpec, ...]:
    """Return specs of the linear layers' weights, as `sfnode init` would train them, without making the model."""
    return tuple(
        TensorSpec(name=f"{name}.weight", kind=TensorKind.MATRIX, rows=module.out_features, cols=module.in_features)
        for name, module in _empty_model(shape).named_modules()
        if isinstance(module, nn.Linear) and name != "lm_head"
    )


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return another model object with the same parameters: its modules can change without touching ``model``."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def bench_manifest(
    tensors: Sequence[TensorSpec],
    *,
    rows: int = 16,
    tokens: int = 64,
    directions: int = _DIRECTIONS,
    core: CoreKind = CoreKind.CANONICAL,
    rank: int = _RANK,
) -> Manifest:
    """Return a run of rank ``rank`` with raw scalars; ``directions`` is halved until it divides the rows."""
    while rows % directions:
        directions //= 2
    task = TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        template="{text}",
        completion="",
        objective=Objective.LOSS,
        label_words=("a", "b"),
        data=DATA_PRIVATE,
        data_sha256="",
        max_tokens=max(tokens, 4),
        batch_rows=rows,
    )
    method = Method(
        rank=rank,
        epoch_steps=1 << 10,
        basis=BasisKind.RANDOM,
        basis_sha256="",
        basis_unit_exp=0,
        basis_max=1,
        start_rank=0,
        core=core,
        scalar=ScalarKind.RAW,
        epsilon_exp=-10,
        sides=2,
        directions=directions,
        shares=1,
        local_steps=1,
        alpha_exp=-30,
        quantum_exp=-3,  # slopes of random models are large: no scalar at the clip
        clip=_CLIP,
    )
    manifest = Manifest(
        format=FORMAT,
        name="bench",
        owner=_SIGNER.author.hex(),
        model=no_model("local:bench"),
        tensors=tuple(tensors),
        task=task,
        method=method,
        schedule=Schedule(kind=ScheduleKind.CONSTANT, weight_start=1, weight_end=1),
        steps=1 << 12,
        staleness=1,
        admission=AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=0),
        authors_max=1 << 10,
    )
    return checked(to_plain(manifest, as_rows=False))


def bench_bases(tensors: Sequence[TensorSpec], basis: BenchBasis, *, size: tuple[int, int]) -> Bases:
    """Return a run of two epochs in ``basis``; ``size``: rows and tokens of a batch."""
    rows, tokens = size
    if basis is BenchBasis.RANDOM:
        manifest = bench_manifest(tensors, rows=rows, tokens=tokens)
    else:
        manifest = bench_manifest(tensors, rows=rows, tokens=tokens, core=CoreKind.RADEMACHER, rank=_RANK_PUBLISHED)
    bases = Bases(replace(manifest, steps=2 * manifest.method.epoch_steps))
    return bases if basis is BenchBasis.RANDOM else published(bases, has_start=basis is BenchBasis.START)


def published(bases: Bases, *, has_start: bool = False) -> Bases:
    """Return the same run with its first epoch's bases published for all epochs.

    With ``has_start``, there are a start and columns in the tensors that `sfnode init` moves, and zeros in the others.
    """
    method, names = bases.manifest.method, [tensor.name for tensor in bases.manifest.tensors]
    found = [bases.of(0, index) for index in range(len(names))]
    start = None
    if has_start:
        writing = [index for index, name in enumerate(names) if name.endswith(_WRITING)]
        for index in range(len(names)):
            if index not in writing[-max(1, len(writing) // 3) :]:
                u, v = found[index].u, found[index].v
                found[index] = Basis(u=np.zeros_like(u), v=None if v is None else np.zeros_like(v))
        start = Start(exp=_START_EXP, products=tuple(found))
    data = basis_file.encode_basis(method.rank, BasisContent(bases=tuple(found), start=start))
    method = replace(
        method,
        basis=BasisKind.PUBLISHED,
        basis_sha256=hashlib.sha256(data).hexdigest(),
        start_rank=method.rank if start else 0,
    )
    manifest = checked(to_plain(replace(bases.manifest, method=method), as_rows=False))
    return Bases(manifest, basis_file.decode_basis_untrusted(manifest, data))


def random_data(rows: int, tokens: int) -> TaskData:
    """Return ``rows`` prompts of ``tokens`` tokens each."""
    drawn = 4 + words(1, rows * tokens, _STREAM).astype(np.int64) % (_VOCABULARY_SMOLLM2 - 4)
    lines = drawn.reshape(rows, tokens).tolist()
    examples = tuple(Example(tokens=tuple(line), label=index % 2) for index, line in enumerate(lines))
    return TaskData(label_tokens=(4, 5), examples=examples)


def some_coefficients(manifest: Manifest, epoch: int) -> NDArray[np.int64]:
    """Return arbitrary coefficients for every tensor, int64[layout.size]."""
    size = CoefficientLayout(manifest).size
    return words(2 + epoch, size, _STREAM).astype(np.int64) % (2 * _CLIP) - _CLIP
