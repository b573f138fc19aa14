"""What a run's weights and projected gradients should be: every product written out densely, one example at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from protocol.run.manifest import Manifest, TensorKind, checked
from protocol.run.method import BasisKind
from protocol.schema import to_plain
from protocol.state.coefficients import CoefficientLayout, view_exp
from protocol.subspace.bases import Bases, Published
from protocol.subspace.basis_file import BasisContent, Start, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis, direction_factors, example_indices, scale_exp
from sfnode.training.estimator import Estimator
from sfnode.training.task.encoding import Example

STEP = 20  # in epoch 1 of 16 steps; epochs 0 and 2 are closed
SEED = 0x5EED
EPOCHS = (0, 1, 2)


def some_coefficients(manifest: Manifest, epoch: int) -> NDArray[np.int64]:
    """Coefficients of every tensor, other ones in each epoch."""
    size = CoefficientLayout(manifest).size
    return ((np.arange(size) * 7919 + 31 * epoch) % 4001 - 2000).astype(np.int64)


def dense_weights(
    bases: Bases, base: dict[str, Tensor], epochs: Sequence[int] = EPOCHS, at: int | None = None
) -> dict[str, Tensor]:
    """W0 + starts - sum of 2^k U C V^T in fp64, one dense product after the other; ``at``: the starts of this epoch,
    None: of the last of ``epochs``."""
    manifest = bases.manifest
    layout = CoefficientLayout(manifest)
    weights = {name: weight.double() for name, weight in base.items()}
    for index, tensor in enumerate(manifest.tensors):
        for start in bases.starts(max(epochs) if at is None else at).values():
            if (product := start.products[index]) is not None and product.v is not None:
                moved = product.u.astype(float) @ product.v.T.astype(float)
                amount = 2.0 ** (start.exp - 2 * manifest.method.basis_unit_exp)
                weights[tensor.name] = weights[tensor.name] + amount * torch.from_numpy(moved)
        for epoch in epochs:
            space = bases.of(epoch, index)
            core = layout.tensor(some_coefficients(manifest, epoch), index)
            moved = space.u.astype(float) @ core.astype(float)
            if space.v is not None:
                moved = moved @ space.v.T.astype(float)
            weights[tensor.name] = weights[tensor.name] - 2.0 ** view_exp(manifest, index) * torch.from_numpy(moved)
    return weights


def dense_direction(bases: Bases, weights: dict[str, Tensor], direction: int, amount: float) -> dict[str, Tensor]:
    """W + amount * z_d."""
    manifest = bases.manifest
    factors = direction_factors(manifest, SEED)
    moved = {name: weight.clone() for name, weight in weights.items()}
    for index, tensor in enumerate(manifest.tensors):
        space = bases.of(STEP // manifest.method.epoch_steps, index)
        z = space.u.astype(float) @ factors.a[direction, index].astype(float)
        if tensor.kind is TensorKind.MATRIX:
            assert space.v is not None
            z = np.outer(z, space.v.astype(float) @ factors.b[direction, index].astype(float))
        moved[tensor.name] += amount * 2.0 ** scale_exp(manifest.method, tensor) * torch.from_numpy(z)
    return moved


def own_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Copies of the model's parameters, by name."""
    return {name: parameter.clone() for name, parameter in model.named_parameters()}


@torch.inference_mode()
def dense_loss(
    model: PreTrainedModel, weights: dict[str, Tensor], examples: Iterable[Example], label_tokens: tuple[int, ...]
) -> float:
    """Mean loss of one unpadded example at a time through the whole model, which keeps ``weights``."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
    losses = []
    for example in examples:
        logits = cast(Any, model)(torch.tensor([example.tokens])).logits[0, -1, list(label_tokens)]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(example.label)).item())
    return math.fsum(losses) / len(losses)


def dense_gradients(model: PreTrainedModel, bases: Bases, session: Estimator) -> list[float]:
    """g_d of every direction of the round at STEP, with coefficients in all of EPOCHS."""
    manifest, method = bases.manifest, bases.manifest.method
    weights = dense_weights(bases, own_weights(model), at=STEP // method.epoch_steps)
    rows = [session.data.examples[i] for i in example_indices(manifest, SEED, 0, len(session.data.examples)).tolist()]
    share = len(rows) * method.shares // method.directions
    amounts = (manifest.epsilon, -manifest.epsilon if method.sides == 2 else 0.0)
    found = []
    for direction in range(method.directions):
        block = direction // method.shares
        members = rows[block * share : (block + 1) * share]
        plus, other = (
            dense_loss(model, dense_direction(bases, weights, direction, amount), members, session.data.label_tokens)
            for amount in amounts
        )
        found.append((plus - other) / (method.sides * manifest.epsilon))
    return found


def bases_of(kind: str, manifest: Manifest) -> Bases:
    """``kind``: "random"; "published", with entries that differ in size; "started": with a start, too; "renewed": other
    ones from epoch 1 on; "restarted": with a start, and with a further one from each of epochs 1 and 2 on."""
    if kind == "random":
        return Bases(manifest)
    start_rank = 3 if kind in ("started", "restarted") else 0
    data = basis_data(manifest, 37, start_rank)
    method = dataclasses.replace(
        manifest.method,
        basis=BasisKind.PUBLISHED,
        basis_sha256=hashlib.sha256(data).hexdigest(),
        basis_unit_exp=3,
        basis_max=11,
        start_rank=start_rank,
    )
    published = checked(to_plain(dataclasses.replace(manifest, method=method), as_rows=False))
    first = decode_basis_untrusted(published, data)
    renewals = {"renewed": {1: renewed_basis(published)}}
    if kind == "restarted":
        renewals[kind] = {1: renewed_basis(published), 2: renewed_basis(published, 43)}
    return Bases(published, first, renewals.get(kind))


def renewed_basis(manifest: Manifest, stride: int = 41) -> Published:
    """Another basis of a run whose basis is published."""
    data = basis_data(manifest, stride, manifest.method.start_rank)
    sha256 = hashlib.sha256(data).hexdigest()
    content = decode_basis_untrusted(manifest, data, sha256)
    return Published(sha256=sha256, bases=content.bases, start=content.start)


def basis_data(manifest: Manifest, stride: int, start_rank: int = 0) -> bytes:
    """A basis file with entries of -11 ... 11."""
    rank, start = manifest.method.rank, None

    def sides(index: int, columns: int) -> Basis:
        tensor = manifest.tensors[index]
        numbers = [np.arange(size * columns) * stride + index for size in (tensor.rows, tensor.cols)]
        u, v = (((side % 23) - 11).astype(np.int8).reshape(-1, columns) for side in numbers)
        return Basis(u=u, v=v if tensor.kind is TensorKind.MATRIX else None)

    every = range(len(manifest.tensors))
    if start_rank:
        matrices = [tensor.kind is TensorKind.MATRIX for tensor in manifest.tensors]
        start = Start(exp=-9, products=tuple(sides(index, start_rank) if matrices[index] else None for index in every))
    return encode_basis(rank, BasisContent(bases=tuple(sides(index, rank) for index in every), start=start))
