"""Door: `Manifest`. The document that all nodes of a run agree on."""

from protocol.run.admission import AdmissionKind, AdmissionSpec, has_work, work_of
from protocol.run.manifest import (
    FORMAT,
    Manifest,
    SignedManifest,
    TensorKind,
    TensorSpec,
    basis_bytes,
    checked,
    coefficient_count,
    decode_run_untrusted,
    sign_manifest,
)
from protocol.run.method import BasisKind, CoreKind, Method, ScalarKind, Schedule, ScheduleKind
from protocol.run.model import (
    FileSpec,
    ModelSpec,
    Sharing,
    is_plain_file_name,
    no_model,
    piece_count,
    weights_digest,
)
from protocol.run.task import DATA_PRIVATE, Objective, TaskKind, TaskSpec

__all__ = [
    "AdmissionKind",
    "AdmissionSpec",
    "BasisKind",
    "CoreKind",
    "DATA_PRIVATE",
    "FORMAT",
    "FileSpec",
    "Manifest",
    "Method",
    "ModelSpec",
    "Objective",
    "ScalarKind",
    "Schedule",
    "ScheduleKind",
    "Sharing",
    "SignedManifest",
    "TaskKind",
    "TaskSpec",
    "TensorKind",
    "TensorSpec",
    "basis_bytes",
    "checked",
    "coefficient_count",
    "decode_run_untrusted",
    "has_work",
    "is_plain_file_name",
    "no_model",
    "piece_count",
    "sign_manifest",
    "weights_digest",
    "work_of",
]
