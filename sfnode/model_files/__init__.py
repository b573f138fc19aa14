"""Door: `resolve_model`. Finds, fetches and checks a model's files on this disk against a run's manifest. No torch."""

from sfnode.model_files.conversion import REFUSED, WeightForm
from sfnode.model_files.definition import check_names, lacks_of_definition, link_weights, remove_others
from sfnode.model_files.disk_room import bytes_to_come, free_bytes
from sfnode.model_files.fetched import assembled_folder, fetched_folder, is_fetched
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
from sfnode.model_files.pieces import HASH_BYTES, PartialFile, PieceIndex, hashes_of, is_there, piece_bytes
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.model_files.shapes import check_shapes
from sfnode.model_files.verify import check_definition, describe_files, found_tokenizer, has_weight_files
from sfnode.model_files.watched import OnProgress

__all__ = [
    "CONFIG_FILE",
    "HASH_BYTES",
    "INDEX_FILE",
    "ModelFolder",
    "OnProgress",
    "PICKLE_INDEX_FILE",
    "PartialFile",
    "PieceIndex",
    "REFUSED",
    "SINGLE_FILE",
    "WeightForm",
    "assembled_folder",
    "bytes_to_come",
    "check_definition",
    "check_names",
    "check_shapes",
    "describe_files",
    "fetched_folder",
    "find_model_folder",
    "found_tokenizer",
    "free_bytes",
    "has_weight_files",
    "hashes_of",
    "is_fetched",
    "is_same_package",
    "is_there",
    "lacks_of_definition",
    "link_weights",
    "pickle_files",
    "piece_bytes",
    "read_config",
    "remove_others",
    "resolve_model",
    "tokenizer_files",
    "weight_files",
]
