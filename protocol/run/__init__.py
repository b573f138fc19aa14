"""Door: `Manifest`. The document that all nodes of a run agree on."""

from protocol.run.admission import AdmissionKind, AdmissionSpec, has_work, work_of
from protocol.run.manifest import (
    FORMAT,
    FileHash,
    Manifest,
    ModelSpec,
    SignedManifest,
    TensorKind,
    TensorSpec,
    basis_bytes,
    checked,
    coefficient_count,
    decode_run_untrusted,
    is_plain_file_name,
    sign_manifest,
)
from protocol.run.method import BasisKind, CoreKind, Method, ScalarKind, Schedule, ScheduleKind
from protocol.run.task import DATA_PRIVATE, Objective, TaskKind, TaskSpec

__all__ = [
    "AdmissionKind",
    "AdmissionSpec",
    "BasisKind",
    "CoreKind",
    "DATA_PRIVATE",
    "FORMAT",
    "FileHash",
    "Manifest",
    "Method",
    "ModelSpec",
    "Objective",
    "ScalarKind",
    "Schedule",
    "ScheduleKind",
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
    "sign_manifest",
    "work_of",
]
