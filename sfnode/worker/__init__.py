"""Door: `Trainer`. The node's side of the training process. No torch."""

from sfnode.worker import audit_case, audit_measuring
from sfnode.worker.audit_case import AuditCase
from sfnode.worker.held_out_measuring import evaluate_alone, evaluate_states, evaluated_step
from sfnode.worker.noise_budget import NoiseBudget
from sfnode.worker.past_states import PastStates
from sfnode.worker.supervisor import children_bytes, worker_process
from sfnode.worker.trainer import Evaluate, Job, Trainer, TrainingStatistics
