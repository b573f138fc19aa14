"""The worker as a process: several nodes on one model, faults that stay inside their request, and every way to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.run.manifest import Manifest, checked, sign_manifest
from protocol.schema import to_plain
from protocol.state.coefficients import CoefficientLayout
from protocol.subspace.basis_file import Bases
from sfnode import demo
from sfnode.model_files.resolve import resolve_model
from sfnode.training.estimator import Estimator
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.model.weights_digest import load_described
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task
from sfnode.worker_protocol.messages import (
    CoefficientsSet,
    EpochCoefficients,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    OpenSession,
    Request,
    SessionOpened,
    SetCoefficients,
    WorkerFailure,
)
from sfnode.worker_protocol.training_config import DeviceOptions, TrainingConfig
from tests.support.dense_runs import dense_demo_run
from tests.support.manifests import OWNER
from tests.support.patience import Stopwatch, wait_for_end
from tests.support.tiny_models import model_manifest
from tests.support.worker_process import WorkerClient, WorkerProcess

MODEL = "embedded:tiny-opt"
DIRECTIONS = 8


def demo_manifest(**method: object) -> Manifest:
    folder = resolve_model(MODEL)
    model = load_causal_lm(folder.path, torch.device("cpu"), torch.float32)
    settings = {"directions": DIRECTIONS, "alpha_exp": -20, **method}
    task = {"template": demo.TEMPLATE, "label_words": list(demo.LABEL_WORDS), "batch_rows": 16}
    manifest = model_manifest(model, [TensorGroup.LINEAR], task=task, **settings)
    return checked({**to_plain(manifest, as_rows=False), "model": to_plain(load_described(folder)[1], as_rows=False)})


def opening(run: Manifest, **changes: object) -> OpenSession:
    fields: dict[str, object] = {
        "model": MODEL,
        "data": demo.data_file(),
        "eval_data": demo.data_file(split="eval"),
        "devices": DeviceOptions(device="cpu"),
        **changes,
    }
    manifest = fields.pop("manifest", sign_manifest(run, OWNER).encode())
    author = fields.pop("author", None)
    training = TrainingConfig(**fields)  # type: ignore[arg-type]
    return OpenSession(manifest=manifest, training=training, author=author)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return demo_manifest()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with WorkerProcess(tmp_path_factory.mktemp("worker")) as process:
        yield process


@pytest.fixture
def client(worker: WorkerProcess) -> Iterator[WorkerClient]:
    connection = worker.connect()
    yield connection
    connection.close()


def test_worker__whole_session__answers_what_the_session_computes(client: WorkerClient, manifest: Manifest) -> None:
    opened = client.ask(opening(manifest))
    assert isinstance(opened, SessionOpened)
    assert (opened.device, opened.dtype, opened.data_rows) == ("cpu", "fp32", 1_024)
    flat = (np.arange(CoefficientLayout(manifest).size) % 201 - 100).astype("<i8")
    epochs = (EpochCoefficients(epoch=0, values=flat.tobytes()), EpochCoefficients(epoch=1, values=flat.tobytes()))
    assert client.ask(SetCoefficients(epochs=epochs)) == CoefficientsSet()
    estimated = client.ask(EstimateRequest(step=3, seed=99, directions=DIRECTIONS))
    evaluated = client.ask(EvaluateRequest())

    folder = resolve_model(MODEL).path
    data = read_task(load_tokenizer(folder), manifest.task, demo.data_file(), demo.data_file(split="eval"))
    session = Estimator(SharedModel(load_causal_lm(folder, torch.device("cpu"), torch.float32)), Bases(manifest), data)
    session.set_coefficients(0, flat)
    session.set_coefficients(1, flat)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the worker: sums of floats depend on it
    expected, accuracy = session.estimate(99, 3), session.evaluate()
    torch.set_num_threads(threads)
    assert isinstance(estimated, Estimated)
    assert isinstance(evaluated, Evaluated)
    assert (estimated.scalars, estimated.rows) == (expected.scalars, 32)
    assert estimated.loss == pytest.approx(expected.loss)
    assert (evaluated.accuracy, evaluated.rows) == (accuracy.accuracy, 512)


def test_worker__author_of_private_rows__takes_those_whose_turn_it_is(client: WorkerClient, tmp_path: Path) -> None:
    signed, basis = dense_demo_run(steps=4)
    (path := tmp_path / "basis").write_bytes(basis)
    losses = []
    for author in (None, b"1" * 32, b"2" * 32):
        assert isinstance(client.ask(opening(signed.manifest, basis=path, author=author)), SessionOpened)
        estimated = client.ask(EstimateRequest(step=3, seed=99, directions=4))
        assert isinstance(estimated, Estimated), estimated
        losses.append(estimated.loss)
    assert len({*losses}) == 3


def test_worker__part_of_the_weights_waits__answers_the_same(client: WorkerClient, manifest: Manifest) -> None:
    found = []
    for limit in (None, 1):
        devices = DeviceOptions(device="cpu", device_memory=limit)
        assert isinstance(client.ask(opening(manifest, devices=devices)), SessionOpened)
        reply = client.ask(EstimateRequest(step=3, seed=99, directions=DIRECTIONS))
        assert isinstance(reply, Estimated)
        found.append((reply.scalars, reply.loss))
    assert found[0] == found[1]


def test_worker__two_nodes__do_not_see_each_others_state(
    worker: WorkerProcess, client: WorkerClient, manifest: Manifest
) -> None:
    other = worker.connect()
    for connection in (client, other):
        assert isinstance(connection.ask(opening(manifest)), SessionOpened)
    untouched = other.ask(EstimateRequest(step=3, seed=5, directions=DIRECTIONS))
    flat = np.full(CoefficientLayout(manifest).size, 40_000, dtype="<i8")
    client.ask(SetCoefficients(epochs=(EpochCoefficients(epoch=0, values=flat.tobytes()),)))
    moved = client.ask(EstimateRequest(step=3, seed=5, directions=DIRECTIONS))
    again = other.ask(EstimateRequest(step=3, seed=5, directions=DIRECTIONS))
    assert isinstance(untouched, Estimated)
    assert isinstance(again, Estimated)
    assert isinstance(moved, Estimated)
    assert again.loss == untouched.loss != moved.loss
    other.close()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "/no/such/model"}, "no such folder"),
        ({"data": Path("/no/such.jsonl")}, "cannot be read"),
        ({"devices": DeviceOptions(device="tpu")}, "allowed are"),
        ({"devices": DeviceOptions(device="cpu", dtype="int3")}, "allowed are"),
        ({"devices": DeviceOptions(device="cpu", dtype="int8", device_memory=1)}, "do not go together"),
        ({"manifest": b"{}\n\n"}, "manifest_format"),
    ],
)
def test_worker__opening_with_a_mistake__says_so_to_the_operator(
    changes: dict[str, object], complaint: str, client: WorkerClient, manifest: Manifest
) -> None:
    reply = client.ask(opening(manifest, **changes))
    assert isinstance(reply, WorkerFailure)
    assert reply.error == "OperatorError"
    assert complaint in reply.message
    assert isinstance(client.ask(opening(manifest)), SessionOpened)  # the connection stays usable


def test_worker__other_models_hashes__are_refused(client: WorkerClient, manifest: Manifest) -> None:
    plain = to_plain(manifest, as_rows=False)
    plain["model"]["config"]["sha256"] = "5" * 64
    reply = client.ask(opening(checked(plain)))
    assert isinstance(reply, WorkerFailure)
    assert reply.error == "OperatorError"
    assert "is not the run's file" in reply.message


def test_worker__overflowing_state__is_a_numeric_failure(client: WorkerClient) -> None:
    manifest = demo_manifest(alpha_exp=0)
    client.ask(opening(manifest))
    flat = np.full(CoefficientLayout(manifest).size, 1 << 40, dtype="<i8")
    client.ask(SetCoefficients(epochs=(EpochCoefficients(epoch=0, values=flat.tobytes()),)))
    reply = client.ask(EstimateRequest(step=3, seed=5, directions=DIRECTIONS))
    assert isinstance(reply, WorkerFailure)
    assert reply.error == "NumericError"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (EstimateRequest(step=0, seed=0, directions=DIRECTIONS), "no session is open"),
        (SetCoefficients(epochs=()), "no session is open"),
    ],
)
def test_worker__request_out_of_place__fails_alone(message: Request, complaint: str, client: WorkerClient) -> None:
    reply = client.ask(message)
    assert isinstance(reply, WorkerFailure)
    assert complaint in reply.message


def test_worker__garbage_on_a_connection__closes_that_connection_only(
    worker: WorkerProcess, client: WorkerClient, manifest: Manifest
) -> None:
    for garbage in (b"\xff" * 64, b"\x00\x00\x00\x01\xc1"):
        bad = worker.connect()
        assert bad.send_raw(garbage) == b""
        bad.close()
    assert isinstance(client.ask(opening(manifest)), SessionOpened)


def test_worker__wrong_number_of_coefficients__is_refused(client: WorkerClient, manifest: Manifest) -> None:
    client.ask(opening(manifest))
    for values in (b"\x00" * 8, b"\x00" * 7):
        reply = client.ask(SetCoefficients(epochs=(EpochCoefficients(epoch=0, values=values),)))
        assert isinstance(reply, WorkerFailure)


def test_worker__parents_end_of_standard_input__ends_it_at_once(tmp_path: Path) -> None:
    start = WorkerProcess(tmp_path)
    with start as process:
        path = process.path
        assert path.stat().st_mode & 0o777 == 0o600
        stopwatch = Stopwatch()
    assert process.process.returncode == 0
    assert stopwatch.seconds() < 5
    assert not path.exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),  # tests/processes kills one, too
    ],
)
def test_worker__sigterm_or_sigkill__node_sees_the_end(number: int, code: int, tmp_path: Path) -> None:
    with WorkerProcess(tmp_path) as process:
        connection = process.connect()
        assert isinstance(connection.ask(EvaluateRequest()), WorkerFailure)  # it serves the connection
        stopwatch = Stopwatch()
        process.process.send_signal(number)
        with pytest.raises((EOFError, ConnectionError)):
            connection.ask(EvaluateRequest())
        assert wait_for_end(process.process, 5) == code
        assert stopwatch.seconds() < 5
        connection.close()
