"""Door: `resolve_model`. A model's files on this disk: found, fetched, and held against a run's manifest. No torch."""

from sfnode.model_files.folder import (
    CONFIG_FILE,
    INDEX_FILE,
    SINGLE_FILE,
    ModelFolder,
    read_config,
    tokenizer_files,
    weight_files,
)
from sfnode.model_files.resolve import resolve_model
from sfnode.model_files.verify import check_definition, describe_files, has_weight_files

__all__ = [
    "CONFIG_FILE",
    "INDEX_FILE",
    "ModelFolder",
    "SINGLE_FILE",
    "check_definition",
    "describe_files",
    "has_weight_files",
    "read_config",
    "resolve_model",
    "tokenizer_files",
    "weight_files",
]
