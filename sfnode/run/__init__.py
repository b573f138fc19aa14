"""Door: `find_manifest`. What an owner or a joiner prepares before a node starts: options, manifest, key, basis."""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face

if TYPE_CHECKING:
    from sfnode.run import default_directory, manifest_builder, node_toml, option_field, public_data, run_address
    from sfnode.run.amounts import parse_noise, parse_rate, parse_size, parse_time
    from sfnode.run.builtin_tasks import BUILTIN_TASKS
    from sfnode.run.default_directory import HOME, find_data_directory
    from sfnode.run.manifest_builder import MethodOptions
    from sfnode.run.manifest_source import find_basis, find_manifest
    from sfnode.run.model_reference import find_model, found_model, joiner_model, may_fetch
    from sfnode.run.node_options import (
        JoinOptions,
        LimitOptions,
        NetworkOptions,
        OnBattery,
        RunSource,
        SharingOptions,
        TrainingOptions,
        values_of,
        with_values,
    )
    from sfnode.run.node_toml import FieldValue
    from sfnode.run.purpose import purpose_of, rule_in_words
    from sfnode.run.reward_options import RewardOptions
    from sfnode.run.run_address import RunAddress
    from sfnode.run.run_draft import RunDraft, RunOptions
    from sfnode.run.secret_input import private_words
    from sfnode.run.task_options import DataOptions, TaskOptions, task_texts
    from sfnode.run.working_hours import WorkingHours, parse_hours
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
