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
from protocol.run.method import CoreKind, ScalarKind
from protocol.schema import to_plain
from protocol.state.coefficients import CoefficientLayout, view_exp
from protocol.subspace.basis_file import Bases, decode_basis_untrusted
from protocol.subspace.directions import direction_factors, scale_exp
from protocol.subspace.drawn_examples import example_indices
from sfnode.training.estimator import Estimator, projected_gradients
from sfnode.training.task.encoding import Example
from tests.support.dense_runs import made_up_basis

STEP = 20  # in epoch 1 of 16 steps; epochs 0 and 2 are closed
SEED = 0x5EED
EPOCHS = (0, 1, 2)


@torch.inference_mode()
def unquantised(session: Estimator, seed: int, step: int, local_step: int = 0) -> list[float]:
    """g_d of one local step of the round at ``step``, at the coefficients as set: what `estimate` quantises."""
    method, epoch = session.manifest.method, step // session.manifest.method.epoch_steps
    factors = direction_factors(session.manifest, seed, local_step)
    with session._shared.switch.using(session._closed_weights(epoch)):
        loss_G = session._losses(factors, epoch, session._live(epoch), session._rows(seed, local_step, method))
    return projected_gradients(method, loss_G)


def some_coefficients(manifest: Manifest, epoch: int) -> NDArray[np.int64]:
    """Coefficients of every tensor, other ones in each epoch."""
    size = CoefficientLayout(manifest).size
    return ((np.arange(size) * 7919 + 31 * epoch) % 4001 - 2000).astype(np.int64)


def dense_weights(bases: Bases, base: dict[str, Tensor], epochs: Sequence[int] = EPOCHS) -> dict[str, Tensor]:
    """W0 - sum of 2^k U C V^T in fp64, one dense product after the other."""
    manifest = bases.manifest
    layout = CoefficientLayout(manifest)
    weights = {name: weight.double() for name, weight in base.items()}
    for index, tensor in enumerate(manifest.tensors):
        for epoch in epochs:
            space = bases.of(epoch, index)
            core = layout.tensor(some_coefficients(manifest, epoch), index)
            moved = space.u.astype(float) @ core.astype(float)
            if space.v is not None:
                moved = moved @ space.v.T.astype(float)
            if tensor.kind is TensorKind.TRANSPOSED:
                moved = moved.T
            scale = 2.0 ** (view_exp(manifest, index) + space.exp)
            weights[tensor.name] = weights[tensor.name] - scale * torch.from_numpy(moved)
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
        logits = cast(Any, model)(torch.tensor([example.tokens]), use_cache=False).logits[0, -1, list(label_tokens)]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(example.label)).item())
    return math.fsum(losses) / len(losses)


def dense_gradients(model: PreTrainedModel, bases: Bases, session: Estimator) -> list[float]:
    """g_d of every direction of the round at STEP, with coefficients in all of EPOCHS."""
    manifest, method = bases.manifest, bases.manifest.method
    weights = dense_weights(bases, own_weights(model))
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
    """``kind``: "random"; "dense": as `made_up_bases`."""
    return Bases(manifest) if kind == "random" else made_up_bases(manifest)


def made_up_bases(manifest: Manifest, *, core_rows: int = 3, is_turned: bool = False, number: int = 7) -> Bases:
    """A run with dense cores of matrices of the manifest: of all with as few outputs as there are.

    ``is_turned``: they are stored as inputs x outputs. ``number``: of the basis.
    """
    matrices = [tensor for tensor in manifest.tensors if tensor.kind is TensorKind.MATRIX]
    fewest = min(tensor.cols if is_turned else tensor.rows for tensor in matrices)
    kind = TensorKind.TRANSPOSED if is_turned else TensorKind.MATRIX
    method = dataclasses.replace(
        manifest.method,
        epoch_steps=1,
        basis_sha256="0" * 64,
        core_rows=core_rows,
        noise_rows=8,
        energy_max=1 << 20,
        core=CoreKind.DENSE,
        scalar=ScalarKind.RAW,
        epsilon_exp=0,
        sides=1,
        shares=1,
        directions=manifest.task.batch_rows,
        local_steps=1,
        clip=127,
    )
    unnamed = dataclasses.replace(
        manifest,
        method=method,
        tensors=tuple(
            dataclasses.replace(tensor, kind=kind)
            for tensor in matrices
            if (tensor.cols if is_turned else tensor.rows) == fewest
        ),
    )
    data = made_up_basis(unnamed, number)
    method = dataclasses.replace(method, basis_sha256=hashlib.sha256(data).hexdigest())
    named = checked(to_plain(dataclasses.replace(unnamed, method=method), as_rows=False))
    return Bases(named, decode_basis_untrusted(named, data))
