"""Door: `find_manifest`. What an owner or a joiner prepares before a node starts: options, manifest, key, basis."""

from typing import TYPE_CHECKING

from sfnode import lazy_face

if TYPE_CHECKING:
    from sfnode.run import (
        builder as builder,
        default_directory as default_directory,
        node_file as node_file,
        option as option,
        public_data as public_data,
        run_address as run_address,
    )
    from sfnode.run.amounts import (
        parse_noise as parse_noise,
        parse_rate as parse_rate,
        parse_size as parse_size,
        parse_time as parse_time,
    )
    from sfnode.run.builder import MethodOptions as MethodOptions
    from sfnode.run.builtin_tasks import BUILTIN_TASKS as BUILTIN_TASKS, TaskTexts as TaskTexts
    from sfnode.run.default_directory import HOME as HOME, find_data_directory as find_data_directory
    from sfnode.run.model_reference import find_model as find_model, joiner_model as joiner_model
    from sfnode.run.node_file import FieldValue as FieldValue
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
    from sfnode.run.private_text import private_words as private_words
    from sfnode.run.reward_options import RewardOptions as RewardOptions
    from sfnode.run.run_address import RunAddress as RunAddress
    from sfnode.run.run_draft import RunDraft as RunDraft, RunOptions as RunOptions
    from sfnode.run.run_source import find_basis as find_basis, find_manifest as find_manifest
    from sfnode.run.task_options import (
        DataOptions as DataOptions,
        TaskOptions as TaskOptions,
        task_texts as task_texts,
    )
    from sfnode.run.working_hours import WorkingHours as WorkingHours, parse_hours as parse_hours
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
