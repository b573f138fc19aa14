"""Door: `Manifest`. The document that all nodes of a run agree on."""

from protocol.run import bounded_json as bounded_json, reward as reward
from protocol.run.admission import (
    AdmissionKind as AdmissionKind,
    AdmissionSpec as AdmissionSpec,
    has_work as has_work,
    work_of as work_of,
)
from protocol.run.manifest import (
    BASIS_MAGIC_BYTES as BASIS_MAGIC_BYTES,
    FORMAT as FORMAT,
    Manifest as Manifest,
    SignedManifest as SignedManifest,
    TensorKind as TensorKind,
    TensorSpec as TensorSpec,
    basis_bytes as basis_bytes,
    checked as checked,
    coefficient_count as coefficient_count,
    core_sizes as core_sizes,
    decode_run_untrusted as decode_run_untrusted,
    sign_manifest as sign_manifest,
)
from protocol.run.method import (
    CoreKind as CoreKind,
    Method as Method,
    ScalarKind as ScalarKind,
    Schedule as Schedule,
    ScheduleKind as ScheduleKind,
)
from protocol.run.model import (
    FileSpec as FileSpec,
    ModelSpec as ModelSpec,
    Sharing as Sharing,
    is_plain_file_name as is_plain_file_name,
    no_model as no_model,
    piece_count as piece_count,
    weights_digest as weights_digest,
)
from protocol.run.reward import (
    Check as Check,
    Constant as Constant,
    JsonSchema as JsonSchema,
    JsonType as JsonType,
    Measure as Measure,
    RangeCheck as RangeCheck,
    RewardRule as RewardRule,
    RowText as RowText,
    SumCheck as SumCheck,
    TextCheck as TextCheck,
    TextMatch as TextMatch,
    parse_reward as parse_reward,
)
from protocol.run.task import (
    DATA_PRIVATE as DATA_PRIVATE,
    Objective as Objective,
    TaskKind as TaskKind,
    TaskSpec as TaskSpec,
)
