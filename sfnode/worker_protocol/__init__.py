"""Doors: `OpenSession`, `PRECISIONS`. What a node and its training process agree on. No torch, no trio."""

from sfnode.worker_protocol.calibration_options import CalibrationOptions, Source
from sfnode.worker_protocol.device_options import DeviceOptions
from sfnode.worker_protocol.device_report import CudaDevice, DeviceReport
from sfnode.worker_protocol.messages import (
    CoefficientsSet,
    EpochCoefficients,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    FailureKind,
    Message,
    OpenSession,
    Reply,
    Request,
    SessionOpened,
    SetCoefficients,
    WorkerFailure,
    decode_body,
    encode_frame,
    new_parser,
    next_body,
)
from sfnode.worker_protocol.precisions import FLOATS, PRECISIONS, Precision

__all__ = [
    "CalibrationOptions",
    "CoefficientsSet",
    "CudaDevice",
    "DeviceOptions",
    "DeviceReport",
    "EpochCoefficients",
    "EstimateRequest",
    "Estimated",
    "EvaluateRequest",
    "Evaluated",
    "FLOATS",
    "FailureKind",
    "Message",
    "OpenSession",
    "PRECISIONS",
    "Precision",
    "Reply",
    "Request",
    "SessionOpened",
    "SetCoefficients",
    "Source",
    "WorkerFailure",
    "decode_body",
    "encode_frame",
    "new_parser",
    "next_body",
]
