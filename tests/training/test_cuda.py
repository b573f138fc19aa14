"""On a CUDA device: a ledger gives the same digests of state and weights as on the CPU; every precision trains."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest
import torch

from protocol.crypto.hashing import seed_of
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.run.method import CoreKind, ScheduleKind
from protocol.state.coefficients import Coefficients
from protocol.subspace.basis_file import Bases
from sfnode.demo import model_folder
from sfnode.run.manifest_builder import MethodOptions
from sfnode.training.estimator import Estimator
from sfnode.training.model.folding import fold_weights, is_quantised
from sfnode.training.model.quantised import QuantisedLinear, closed_weights, load_in
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.shared_model import SharedModel
from tests.support.demo_run import AUTHORS, demo_run
from tests.support.quantised_models import HAS_TORCHAO
from tests.support.tiny_models import model_manifest
from tests.training.brute_force import bases_of, some_coefficients, unquantised
from tests.training.tiny_architectures import tiny_model

needs_torchao = pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is not installed: pip install -e '.[quantised]'")
PRECISIONS: Final = [
    ("fp32", 0.999),
    ("fp16", 0.99),
    ("bf16", 0.99),
    pytest.param("int8", 0.98, marks=needs_torchao),
    pytest.param("int8-fp32", 0.999, marks=needs_torchao),
]

pytestmark = [
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="NO CUDA DEVICE: that CPU and CUDA hold the same weights, and that CUDA trains, is NOT TESTED here",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def _full_precision() -> Iterator[None]:
    """No TF32: what operators get unless they ask for it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def demo_session(precision: str, device: str, manifest: Manifest) -> Estimator:
    data = demo_run(MethodOptions(), 1).session.data
    return Estimator(SharedModel(load_in(precision, model_folder(), torch.device(device))), Bases(manifest), data)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_cuda__weights_wait_in_main_memory__gradients_are_the_same(precision: str) -> None:
    run = demo_run(MethodOptions(), 100)
    cuda = torch.device("cuda")
    whole, offloaded = (SharedModel(load_in(precision, model_folder(), cuda, limit)) for limit in (None, 1))
    sessions = [Estimator(shared, Bases(run.manifest), run.session.data) for shared in (whole, offloaded)]
    expected, found = (unquantised(session, seed=5, step=0) for session in sessions)
    assert found == pytest.approx(expected, rel=1e-6)


def digest_of(weights: dict[str, torch.Tensor]) -> str:
    hasher = hashlib.sha256()
    for name in sorted(weights):
        hasher.update(name.encode() + weights[name].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


@pytest.mark.parametrize("kind", ["random", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_cuda__same_coefficients__fold_has_the_bits_of_the_cpu(dtype: torch.dtype, kind: str) -> None:
    model = tiny_model("llama")
    manifest = model_manifest(model, list(TensorGroup), alpha_exp=-20, clip=10)
    bases = bases_of(kind, manifest)
    epochs = {epoch: some_coefficients(bases.manifest, epoch) << (20 * epoch) for epoch in range(3)}
    base = {name: weight.to(dtype) for name, weight in model.named_parameters()}
    on_cuda = {name: weight.to("cuda") for name, weight in base.items()}
    assert digest_of(fold_weights(bases, epochs, base)) == digest_of(fold_weights(bases, epochs, on_cuda))


def test_cuda__node_beside_a_cpu_node__states_and_fp32_weights_have_equal_digests() -> None:
    steps = 8
    options = MethodOptions(learning_rate=5e-4, schedule=ScheduleKind.CONSTANT, epoch_steps=5)
    manifest = demo_run(options, steps).manifest
    codec = EnvelopeCodec(manifest)
    nodes = [(demo_session("fp32", device, manifest), Coefficients(manifest)) for device in ("cpu", "cuda")]
    for step in range(steps):
        sent = [
            codec.seal(author, step, session.estimate(seed_of(manifest.run_id, author.author, step), step).scalars)
            for author, (session, _) in zip(AUTHORS[:2], nodes, strict=True)
        ]
        for turn, (session, coefficients) in enumerate(nodes):
            coefficients.add(sent[turn:] + sent[:turn])
            session.set_coefficients(step // 5, coefficients.flat(step // 5))
    assert nodes[0][1].digest() == nodes[1][1].digest()
    digests = []
    for device, (_, coefficients) in zip(("cpu", "cuda"), nodes, strict=True):
        base = dict(load_in("fp32", model_folder(), torch.device(device)).named_parameters())
        epochs = {epoch: coefficients.flat(epoch) for epoch in coefficients.epochs()}
        assert len(epochs) == 2
        digests.append(digest_of(fold_weights(Bases(manifest), epochs, base)))
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("precision", "least"), PRECISIONS)
def test_cuda__each_precision__gradients_follow_those_of_the_cpu(precision: str, least: float) -> None:
    run = demo_run(MethodOptions(core=CoreKind.RADEMACHER, epsilon_exp=-8), 100)
    other = demo_session(precision, "cuda", run.manifest)
    expected, found = (
        np.array([unquantised(session, seed, step=0) for seed in range(12)]).ravel() for session in (run.session, other)
    )
    assert np.corrcoef(expected, found)[0, 1] > least


@needs_torchao
def test_cuda__int4__trains_and_its_closed_epochs_count() -> None:
    manifest = demo_run(MethodOptions(core=CoreKind.RADEMACHER, epsilon_exp=-8), 100).manifest
    model = load_in("int4", model_folder(), torch.device("cuda"))
    assert any(isinstance(module, QuantisedLinear) and is_quantised(module.weight) for module in model.modules())
    session = Estimator(SharedModel(model), Bases(manifest), demo_run(MethodOptions(), 1).session.data)
    before = unquantised(session, 1, step=manifest.method.epoch_steps)
    assert np.isfinite(before).all()
    weights = closed_weights(Bases(manifest), {0: some_coefficients(manifest, 0)}, dict(model.named_parameters()))
    assert weights
    session.set_coefficients(0, some_coefficients(manifest, 0))
    assert unquantised(session, 1, step=manifest.method.epoch_steps) != before
