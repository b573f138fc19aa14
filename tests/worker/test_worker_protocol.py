"""Frames between node and worker: what is encoded is decoded, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from protocol.errors import WorkerError
from sfnode.worker_protocol.messages import (
    FRAME_BYTES_MAX,
    CoefficientsSet,
    EpochCoefficients,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    Evaluating,
    Message,
    MessageParser,
    OpenSession,
    SessionOpened,
    SetCoefficients,
    WorkerFailure,
    decode_body,
    encode_frame,
)
from sfnode.worker_protocol.training_config import DeviceOptions, TrainingConfig

MESSAGES: list[Message] = [
    OpenSession(
        manifest=b"{}\n",
        training=TrainingConfig(
            model="embedded:tiny-opt",
            data=None,
            eval_data=Path("e.jsonl"),
            devices=DeviceOptions(device="cpu", device_memory=300),
            threads=2,
            worker_socket=Path("/s/worker.sock"),
            basis=Path("/b"),
        ),
    ),
    SetCoefficients(epochs=(EpochCoefficients(epoch=3, values=b"\x01" * 16), EpochCoefficients(epoch=4, values=b""))),
    EstimateRequest(step=7, seed=(1 << 64) - 1, directions=256),
    EvaluateRequest(),
    Evaluating(done=300, rows=1_000),
    SessionOpened(device="cpu", dtype="fp32", is_widened=False, data_rows=1, model_parameters=10**10),
    CoefficientsSet(),
    Estimated(scalars=(-127, 0, 127), loss=0.5, rows=32),
    Evaluated(accuracy=0.5, f1=None, loss=1.5, rows=872, predictions=(1, 0)),
    WorkerFailure(error="NumericError", message="not finite"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_worker_frame__each_message__comes_back_equal(message: Message) -> None:
    frame, parser = encode_frame(message), MessageParser()
    parser.feed_untrusted(frame)
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert decode_body(frame[4:]) == message
    assert (parser.next_message(), parser.next_message()) == (message, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x05",
        msgpack.packb(["Nothing", []]),
        msgpack.packb(["EstimateRequest", [1]]),
        msgpack.packb(["EstimateRequest", [1, "x", 2]]),
        b"\x91" * 99,
    ],
)
def test_worker_frame__malformed_body__raises_worker_error(body: bytes) -> None:
    with pytest.raises(WorkerError, match="cannot be read"):
        decode_body(body)


def test_worker_frame__length_above_bound__raises_worker_error() -> None:
    parser = MessageParser()
    parser.feed_untrusted((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(WorkerError, match="out of step"):
        parser.next_message()
