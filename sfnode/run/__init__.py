"""Door: `find_manifest`. What an owner or a joiner prepares before a node starts: options, manifest, key, basis."""

from sfnode.run.amounts import parse_rate, parse_size
from sfnode.run.builder import (
    AUTHORS_MAX,
    BEST,
    OPEN,
    RANK,
    STALENESS,
    MethodOptions,
    build_manifest,
    method_of,
    read_toml,
)
from sfnode.run.builtin_tasks import BUILTIN_TASKS
from sfnode.run.default_directory import HOME, find_data_directory
from sfnode.run.model_reference import find_model, joiner_model
from sfnode.run.node_file import FieldValue, read_node_file, toml_of, write_node_file
from sfnode.run.node_options import (
    JoinOptions,
    LimitOptions,
    NetworkOptions,
    OnBattery,
    RunSource,
    SharingOptions,
    SnapshotOptions,
    TrainingOptions,
    values_of,
    with_values,
)
from sfnode.run.private_text import private_words
from sfnode.run.public_data import described_source, find_public_data, is_of_peers, shared_data
from sfnode.run.run_address import RunAddress, address_for_others, join_string, parse_run_addresses, string_for_others
from sfnode.run.run_draft import RunDraft, RunOptions
from sfnode.run.run_source import find_basis, find_manifest
from sfnode.run.task_options import DataOptions, TaskOptions, TaskTexts, task_texts
from sfnode.run.working_hours import WorkingHours, parse_hours

__all__ = [
    "AUTHORS_MAX",
    "BEST",
    "BUILTIN_TASKS",
    "DataOptions",
    "FieldValue",
    "HOME",
    "JoinOptions",
    "LimitOptions",
    "MethodOptions",
    "NetworkOptions",
    "OPEN",
    "OnBattery",
    "RANK",
    "STALENESS",
    "RunAddress",
    "RunDraft",
    "RunOptions",
    "RunSource",
    "SharingOptions",
    "SnapshotOptions",
    "TaskOptions",
    "TaskTexts",
    "TrainingOptions",
    "WorkingHours",
    "address_for_others",
    "build_manifest",
    "described_source",
    "find_basis",
    "find_data_directory",
    "find_manifest",
    "find_model",
    "find_public_data",
    "is_of_peers",
    "join_string",
    "joiner_model",
    "method_of",
    "parse_hours",
    "parse_rate",
    "parse_run_addresses",
    "parse_size",
    "private_words",
    "read_node_file",
    "read_toml",
    "shared_data",
    "string_for_others",
    "task_texts",
    "toml_of",
    "values_of",
    "with_values",
    "write_node_file",
]
