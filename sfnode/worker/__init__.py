"""Door: `Trainer`. The node's side of the training process. No torch."""

from sfnode.worker.audit_case import AuditCase, AuditVerdict
from sfnode.worker.measuring import evaluate_states
from sfnode.worker.past_states import PastStates
from sfnode.worker.remeasuring import audit_messages, check_auditable, choose_messages
from sfnode.worker.supervisor import children_bytes, worker_process
from sfnode.worker.trainer import Evaluate, Job, Trainer, TrainingStatistics

__all__ = [
    "AuditCase",
    "AuditVerdict",
    "Evaluate",
    "Job",
    "PastStates",
    "Trainer",
    "TrainingStatistics",
    "audit_messages",
    "check_auditable",
    "children_bytes",
    "choose_messages",
    "evaluate_states",
    "worker_process",
]
