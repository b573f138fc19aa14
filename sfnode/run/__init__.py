"""Door: `find_manifest`. What an owner or a joiner prepares before a node starts: options, manifest, key, basis."""

from sfnode.run import (
    default_directory as default_directory,
    manifest_builder as manifest_builder,
    node_toml as node_toml,
    option_field as option_field,
    public_data as public_data,
    run_address as run_address,
)
from sfnode.run.amounts import (
    parse_noise as parse_noise,
    parse_rate as parse_rate,
    parse_size as parse_size,
    parse_time as parse_time,
)
from sfnode.run.builtin_tasks import BUILTIN_TASKS as BUILTIN_TASKS, TaskTexts as TaskTexts
from sfnode.run.default_directory import HOME as HOME, find_data_directory as find_data_directory
from sfnode.run.manifest_builder import MethodOptions as MethodOptions
from sfnode.run.manifest_source import find_basis as find_basis, find_manifest as find_manifest
from sfnode.run.model_reference import find_model as find_model, joiner_model as joiner_model
from sfnode.run.node_options import (
    JoinOptions as JoinOptions,
    LimitOptions as LimitOptions,
    NetworkOptions as NetworkOptions,
    OnBattery as OnBattery,
    RunSource as RunSource,
    SharingOptions as SharingOptions,
    TrainingOptions as TrainingOptions,
    values_of as values_of,
    with_values as with_values,
)
from sfnode.run.node_toml import FieldValue as FieldValue
from sfnode.run.reward_options import RewardOptions as RewardOptions
from sfnode.run.run_address import RunAddress as RunAddress
from sfnode.run.run_draft import RunDraft as RunDraft, RunOptions as RunOptions
from sfnode.run.secret_input import private_words as private_words
from sfnode.run.task_options import DataOptions as DataOptions, TaskOptions as TaskOptions, task_texts as task_texts
from sfnode.run.working_hours import WorkingHours as WorkingHours, parse_hours as parse_hours
