"""Doors: `messages`, `TrainingConfig`. What a node and its training process agree on. No torch, no trio."""

from sfnode.worker_protocol import messages
from sfnode.worker_protocol.memory_and_disk import free_disk, free_memory, temporary_folder
from sfnode.worker_protocol.messages import Estimated, Evaluated
from sfnode.worker_protocol.training_config import (
    FLOATS,
    PRECISIONS,
    CudaDevice,
    DeviceOptions,
    DeviceReport,
    NoiseConfig,
    Precision,
    ProductSpeed,
    TrainingConfig,
)
from sfnode.worker_protocol.weight_plan import ANSWER_TOKENS_AT_ONCE, WeightPlan, plan_weights, waits_in_files
