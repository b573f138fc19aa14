"""Door: `resolve_model`. A model's files on this disk: found, fetched, and held against a run's manifest. No torch."""

from sfnode.model_files.conversion import REFUSED, WeightForm
from sfnode.model_files.folder import (
    CONFIG_FILE,
    INDEX_FILE,
    PICKLE_INDEX_FILE,
    SINGLE_FILE,
    ModelFolder,
    pickle_files,
    read_config,
    tokenizer_files,
    weight_files,
)
from sfnode.model_files.packages import is_same_package
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.model_files.verify import check_definition, describe_files, has_weight_files
from sfnode.model_files.watched import OnProgress

__all__ = [
    "CONFIG_FILE",
    "INDEX_FILE",
    "ModelFolder",
    "OnProgress",
    "PICKLE_INDEX_FILE",
    "REFUSED",
    "SINGLE_FILE",
    "WeightForm",
    "check_definition",
    "describe_files",
    "find_model_folder",
    "has_weight_files",
    "is_same_package",
    "pickle_files",
    "read_config",
    "resolve_model",
    "tokenizer_files",
    "weight_files",
]
