"""Make models, manifests, data and updates to measure with: published shapes, meaningless numbers."""

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
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from protocol.crypto import Signer, seed_of
from protocol.errors import OperatorError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import FORMAT, BasisKind, CoreKind, Manifest, TensorKind, TensorSpec, checked, no_model
from protocol.schema import to_plain
from protocol.state import CoefficientLayout
from protocol.subspace import (
    Bases,
    Basis,
    BasisContent,
    Start,
    decode_basis_untrusted,
    encode_basis,
    words,
)
from sfnode.training.task import Example, TaskData

# name -> (hidden, layers, heads, ffn) of OPT (Zhang et al., arXiv 2205.01068, table 1)
SHAPES: Final = {
    "opt-tiny": (64, 2, 2, 256),
    "opt-125m": (768, 12, 12, 3_072),
    "opt-1.3b": (2_048, 24, 32, 8_192),
    "opt-2.7b": (2_560, 32, 32, 10_240),
    "opt-6.7b": (4_096, 32, 32, 16_384),
}
SMOLLM2: Final = "smollm2-135m"  # Ben Allal et al., arXiv 2502.02737
VOCABULARY: Final = 50_272
_VOCABULARY_SMOLLM2: Final = 49_152
POSITIONS: Final = 2_048
SIGNER: Final = Signer(b"benchmark".ljust(32, b"."))
RANK: Final = 32  # of random bases
_RANK_PUBLISHED: Final = 1
DIRECTIONS: Final = 8
CLIP: Final = 1 << 10
_WEIGHTS_STD: Final = 0.02  # OPT's own initialisation
_STREAM: Final = 0  # of the generator; the keys below separate its uses
_LABELS: Final = (4, 5)
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
    made: Any = _meta_model(shape).to(dtype).to_empty(device=device)
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


def _meta_model(shape: str) -> Any:
    models: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return models.from_config(_config(shape))


def _config(shape: str) -> PretrainedConfig:
    if shape == SMOLLM2:
        return LlamaConfig(
            vocab_size=_VOCABULARY_SMOLLM2,
            hidden_size=576,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            intermediate_size=1_536,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=True,
        )
    if shape not in SHAPES:
        raise OperatorError(f"shape {shape!r}: known are {', '.join([*SHAPES, SMOLLM2])}")
    hidden, layers, heads, ffn = SHAPES[shape]
    return OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        word_embed_proj_dim=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        ffn_dim=ffn,
        max_position_embeddings=POSITIONS,
    )


def shape_tensors(shape: str) -> tuple[TensorSpec, ...]:
    """Return specs of the linear layers' weights, as `sfnode init` would train them, without making the model."""
    model = _meta_model(shape)
    return tuple(
        TensorSpec(name=f"{name}.weight", kind=TensorKind.MATRIX, rows=module.out_features, cols=module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name != "lm_head"
    )


def weights_of(tensors: Sequence[TensorSpec]) -> int:
    """Return the number of weights."""
    return sum(tensor.rows * max(1, tensor.cols) for tensor in tensors)


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return another model object with the same parameters: its modules can change without touching ``model``."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def bench_manifest(
    tensors: Sequence[TensorSpec],
    *,
    rows: int = 16,
    tokens: int = 64,
    directions: int = DIRECTIONS,
    core: CoreKind = CoreKind.CANONICAL,
    rank: int = RANK,
) -> Manifest:
    """Return a run of rank ``rank`` with raw scalars; ``directions`` is halved until it divides the rows."""
    while rows % directions:
        directions //= 2
    return checked(
        {
            "format": FORMAT,
            "name": "bench",
            "owner": SIGNER.author.hex(),
            "model": to_plain(no_model("local:bench"), as_rows=False),
            "tensors": [to_plain(tensor, as_rows=False) for tensor in tensors],
            "task": {
                "kind": "classification",
                "template": "{text}",
                "completion": "",
                "objective": "loss",
                "label_words": ["a", "b"],
                "data": "private",
                "data_sha256": "",
                "max_tokens": max(tokens, 4),
                "batch_rows": rows,
            },
            "method": {
                "rank": rank,
                "epoch_steps": 1 << 10,
                "basis": "random",
                "basis_sha256": "",
                "basis_unit_exp": 0,
                "basis_max": 1,
                "start_rank": 0,
                "sides": 2,
                "shares": 1,
                "core": str(core),
                "scalar": "raw",
                "epsilon_exp": -10,
                "directions": directions,
                "local_steps": 1,
                "alpha_exp": -30,
                "quantum_exp": -3,  # slopes of random models are large: no scalar at the clip
                "clip": CLIP,
            },
            "schedule": {"kind": "constant", "weight_start": 1, "weight_end": 1},
            "steps": 1 << 12,
            "staleness": 1,
            "admission": {"kind": "open", "pow_bits": 0},
            "authors_max": 1 << 10,
        }
    )


def bench_bases(tensors: Sequence[TensorSpec], basis: BenchBasis, *, rows: int, tokens: int, epochs: int = 1) -> Bases:
    """Return a run of ``epochs`` epochs in ``basis``, with a number of directions that divides the rows."""
    if basis is BenchBasis.RANDOM:
        manifest = bench_manifest(tensors, rows=rows, tokens=tokens)
    else:
        manifest = bench_manifest(tensors, rows=rows, tokens=tokens, core=CoreKind.RADEMACHER, rank=_RANK_PUBLISHED)
    bases = Bases(replace(manifest, steps=epochs * manifest.method.epoch_steps))
    if basis is BenchBasis.RANDOM:
        return bases
    return published(bases) if basis is BenchBasis.PUBLISHED else _started(bases)


def published(bases: Bases) -> Bases:
    """Return the same run with its first epoch's bases published for all epochs."""
    return _of_file(bases, BasisContent(bases=_first_of(bases)))


def _started(bases: Bases) -> Bases:
    """Return the same run with columns and a start in the tensors that `sfnode init` moves, and zeros in the others."""
    names = [tensor.name for tensor in bases.manifest.tensors]
    writing = [index for index, name in enumerate(names) if name.endswith(_WRITING)]
    moving = {*writing[-max(1, len(writing) // 3) :]}
    found = tuple(basis if index in moving else _nothing(basis) for index, basis in enumerate(_first_of(bases)))
    return _of_file(bases, BasisContent(bases=found, start=Start(exp=_START_EXP, products=found)))


def _nothing(like: Basis) -> Basis:
    return Basis(u=np.zeros_like(like.u), v=None if like.v is None else np.zeros_like(like.v))


def _first_of(bases: Bases) -> tuple[Basis, ...]:
    return tuple(bases.of(0, index) for index in range(len(bases.manifest.tensors)))


def _of_file(bases: Bases, content: BasisContent) -> Bases:
    method = bases.manifest.method
    data = encode_basis(method.rank, content)
    method = replace(
        method,
        basis=BasisKind.PUBLISHED,
        basis_sha256=hashlib.sha256(data).hexdigest(),
        start_rank=method.rank if content.start else 0,
    )
    manifest = checked(to_plain(replace(bases.manifest, method=method), as_rows=False))
    return Bases(manifest, decode_basis_untrusted(manifest, data))


def random_data(rows: int, tokens: int) -> TaskData:
    """Return ``rows`` prompts of ``tokens`` tokens each."""
    drawn = 4 + words(1, rows * tokens, _STREAM).astype(np.int64) % (_VOCABULARY_SMOLLM2 - 4)
    lines = drawn.reshape(rows, tokens).tolist()
    examples = tuple(Example(tokens=tuple(line), label=index % 2) for index, line in enumerate(lines))
    return TaskData(label_tokens=_LABELS, examples=examples)


def some_coefficients(manifest: Manifest, epoch: int) -> NDArray[np.int64]:
    """Return arbitrary coefficients for every tensor, int64[layout.size]."""
    size = CoefficientLayout(manifest).size
    return words(2 + epoch, size, _STREAM).astype(np.int64) % (2 * CLIP) - CLIP


def verified_envelopes(manifest: Manifest, count: int) -> list[Envelope]:
    """Return ``count`` updates of successive steps in the form after verification; they have no valid signatures."""
    record = bytes(EnvelopeCodec(manifest).record_bytes)
    return [
        Envelope(
            author=SIGNER.author,
            step=index % manifest.method.epoch_steps,
            seed=seed_of(manifest.run_id, SIGNER.author, index),
            scalars=some_scalars(manifest, index),
            record=record,
        )
        for index in range(count)
    ]


def some_scalars(manifest: Manifest, index: int) -> tuple[int, ...]:
    """Return the scalars of update number ``index``."""
    return tuple((index + direction) % (2 * CLIP + 1) - CLIP for direction in range(manifest.method.scalars))
