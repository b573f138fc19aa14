"""Doors: `OpenSession`, `PRECISIONS`. What a node and its training process agree on. No torch, no trio."""

from sfnode.worker_protocol import messages as messages
from sfnode.worker_protocol.device_choices import (
    FLOATS as FLOATS,
    PRECISIONS as PRECISIONS,
    CudaDevice as CudaDevice,
    DeviceOptions as DeviceOptions,
    DeviceReport as DeviceReport,
    Precision as Precision,
    ProductSpeed as ProductSpeed,
)
from sfnode.worker_protocol.memory_and_disk import (
    free_disk as free_disk,
    free_memory as free_memory,
    temporary_folder as temporary_folder,
)
from sfnode.worker_protocol.messages import (
    CoefficientsSet as CoefficientsSet,
    Estimated as Estimated,
    EstimateRequest as EstimateRequest,
    Evaluated as Evaluated,
    EvaluateRequest as EvaluateRequest,
    FailureKind as FailureKind,
    Message as Message,
    MessageParser as MessageParser,
    OpenSession as OpenSession,
    Reply as Reply,
    SessionOpened as SessionOpened,
    SetCoefficients as SetCoefficients,
    WorkerFailure as WorkerFailure,
    encode_frame as encode_frame,
)
from sfnode.worker_protocol.training_config import NoiseConfig as NoiseConfig, TrainingConfig as TrainingConfig
from sfnode.worker_protocol.weight_plan import (
    ANSWER_TOKENS_AT_ONCE as ANSWER_TOKENS_AT_ONCE,
    WeightPlan as WeightPlan,
    plan_weights as plan_weights,
    waits_in_files as waits_in_files,
)
