"""Door: `Manifest`. The document that all nodes of a run agree on."""

from protocol.run import bounded_json, reward
from protocol.run.admission import OPEN_TO_ALL, AdmissionKind, AdmissionSpec, has_work, work_of
from protocol.run.invitation import Invitation, read_invitation
from protocol.run.manifest import (
    BASIS_MAGIC_BYTES,
    FORMAT,
    Manifest,
    SignedManifest,
    TensorKind,
    TensorSpec,
    basis_bytes,
    checked,
    coefficient_count,
    core_sizes,
    decode_run_untrusted,
    sign_manifest,
)
from protocol.run.method import CoreKind, Method, ScalarKind, Schedule, ScheduleKind
from protocol.run.model import FileSpec, ModelSpec, Sharing, is_plain_file_name, no_model, piece_count, weights_digest
from protocol.run.reward import RewardRule, parse_reward
from protocol.run.task import DATA_PRIVATE, Objective, TaskKind, TaskSpec
