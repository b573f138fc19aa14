"""Door: `Trainer`. The node's side of the training process. No torch."""

from sfnode.worker.audit_case import AuditVerdict, Remeasurement
from sfnode.worker.evaluation import evaluate_states
from sfnode.worker.past_states import PastStates
from sfnode.worker.process_memory import children_bytes
from sfnode.worker.remeasuring import Audit, audit_messages, check_auditable, choose_messages, report_name
from sfnode.worker.supervisor import worker_process
from sfnode.worker.trainer import Evaluate, Job, Trainer, TrainingStatistics

__all__ = [
    "Audit",
    "Evaluate",
    "Job",
    "PastStates",
    "Remeasurement",
    "Trainer",
    "TrainingStatistics",
    "AuditVerdict",
    "audit_messages",
    "check_auditable",
    "children_bytes",
    "choose_messages",
    "evaluate_states",
    "report_name",
    "worker_process",
]
