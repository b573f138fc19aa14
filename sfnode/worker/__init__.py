"""Door: `Trainer`. The node's side of the training process. No torch."""

from sfnode.worker import audit_measuring as audit_measuring
from sfnode.worker.audit_case import AuditCase as AuditCase, AuditVerdict as AuditVerdict
from sfnode.worker.held_out_measuring import (
    evaluate_alone as evaluate_alone,
    evaluate_states as evaluate_states,
    evaluated_step as evaluated_step,
)
from sfnode.worker.noise_budget import NoiseBudget as NoiseBudget
from sfnode.worker.past_states import PastStates as PastStates
from sfnode.worker.supervisor import children_bytes as children_bytes, worker_process as worker_process
from sfnode.worker.trainer import (
    Evaluate as Evaluate,
    Job as Job,
    Trainer as Trainer,
    TrainingStatistics as TrainingStatistics,
)
