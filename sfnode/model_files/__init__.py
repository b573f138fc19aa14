"""Door: `resolve_model`. Finds, fetches and checks a model's files on this disk against a run's manifest. No torch."""

from sfnode.model_files.conversion import REFUSED, WeightForm
from sfnode.model_files.fetched_model import FetchedModel
from sfnode.model_files.folder import (
    CONFIG_FILE,
    INDEX_FILE,
    SINGLE_FILE,
    ModelFolder,
    pickle_files,
    read_config,
    tokenizer_files,
    weight_files,
)
from sfnode.model_files.packages import is_same_package
from sfnode.model_files.pieces import (
    HASH_BYTES,
    PartialFile,
    PieceIndex,
    bytes_to_come,
    hashes_of,
    is_there,
    piece_bytes,
)
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.model_files.verify import (
    check_definition,
    check_shapes,
    describe_files,
    found_tokenizer,
    has_weight_files,
)
from sfnode.model_files.watched import OnProgress

__all__ = [
    "CONFIG_FILE",
    "FetchedModel",
    "HASH_BYTES",
    "INDEX_FILE",
    "ModelFolder",
    "OnProgress",
    "PartialFile",
    "PieceIndex",
    "REFUSED",
    "SINGLE_FILE",
    "WeightForm",
    "bytes_to_come",
    "check_definition",
    "check_shapes",
    "describe_files",
    "find_model_folder",
    "found_tokenizer",
    "has_weight_files",
    "hashes_of",
    "is_same_package",
    "is_there",
    "pickle_files",
    "piece_bytes",
    "read_config",
    "resolve_model",
    "tokenizer_files",
    "weight_files",
]
