"""Doors: `OpenSession`, `PRECISIONS`. What a node and its training process agree on. No torch, no trio."""

from sfnode.worker_protocol.calibration_options import CalibrationOptions, Source
from sfnode.worker_protocol.device_choices import FLOATS, PRECISIONS, CudaDevice, DeviceOptions, DeviceReport, Precision
from sfnode.worker_protocol.messages import (
    CoefficientsSet,
    EpochCoefficients,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    FailureKind,
    Message,
    MessageParser,
    OpenSession,
    Reply,
    Request,
    SessionOpened,
    SetCoefficients,
    WorkerFailure,
    encode_frame,
)
from sfnode.worker_protocol.room import free_disk, free_memory, temporary_folder
from sfnode.worker_protocol.training_config import TrainingConfig
from sfnode.worker_protocol.weight_plan import WeightPlan, plan_weights, waits_in_files

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
    "MessageParser",
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
    "encode_frame",
    "free_disk",
    "free_memory",
    "plan_weights",
    "temporary_folder",
    "waits_in_files",
]
