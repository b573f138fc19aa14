"""Door: `find_manifest`. What an owner or a joiner prepares before a node starts: options, manifest, key, basis."""

from sfnode.run.builder import (
    BEST,
    OPEN,
    RANK,
    MethodOptions,
    RunDraft,
    build_manifest,
    method_of,
    read_toml,
    without_start,
)
from sfnode.run.builtin_tasks import BUILTIN_TASKS
from sfnode.run.data_directory import HOME, find_data_directory
from sfnode.run.model_reference import find_model, joiner_model
from sfnode.run.node_key import claim_invitation, node_seed
from sfnode.run.node_options import (
    JoinOptions,
    NetworkOptions,
    RunSource,
    SharingOptions,
    SnapshotOptions,
    TrainingOptions,
)
from sfnode.run.owner_key import check_owner, new_invitation
from sfnode.run.run_address import RunAddress, address_for_others, parse_run_addresses
from sfnode.run.run_source import find_basis, find_manifest
from sfnode.run.task_options import DataOptions, TaskOptions, texts_of

__all__ = [
    "BEST",
    "BUILTIN_TASKS",
    "DataOptions",
    "HOME",
    "JoinOptions",
    "MethodOptions",
    "NetworkOptions",
    "OPEN",
    "RANK",
    "RunAddress",
    "RunDraft",
    "RunSource",
    "SharingOptions",
    "SnapshotOptions",
    "TaskOptions",
    "TrainingOptions",
    "address_for_others",
    "build_manifest",
    "check_owner",
    "claim_invitation",
    "find_basis",
    "find_data_directory",
    "find_manifest",
    "find_model",
    "joiner_model",
    "method_of",
    "new_invitation",
    "node_seed",
    "parse_run_addresses",
    "read_toml",
    "texts_of",
    "without_start",
]
