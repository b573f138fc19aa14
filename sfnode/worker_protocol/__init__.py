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
from sfnode.worker_protocol.room import free_disk, free_memory, temporary_folder
from sfnode.worker_protocol.training_config import TrainingConfig
from sfnode.worker_protocol.weight_plan import WeightPlan, check_room, plan_weights, waits_in_files

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
    "TrainingConfig",
    "WeightPlan",
    "WorkerFailure",
    "check_room",
    "decode_body",
    "encode_frame",
    "free_disk",
    "free_memory",
    "new_parser",
    "next_body",
    "plan_weights",
    "temporary_folder",
    "waits_in_files",
]
