"""The folders in the model cache for models that are fetched from peers."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from protocol.run import ModelSpec
from sfnode.model_files.model_cache import cache_folder

_CONTENT_DIGITS: Final = 16
_FILES_DIGITS: Final = 8


def fetched_folder(spec: ModelSpec) -> Path:
    """Return the folder for the run's own files. Two runs may share their weights but not their tokenizer."""
    files = sha256("".join(f"{file.name}\n{file.sha256}\n" for file in spec.files).encode("utf-8")).hexdigest()
    return cache_folder() / f"{spec.content[:_CONTENT_DIGITS]}-{files[:_FILES_DIGITS]}"


def is_fetched(spec: ModelSpec) -> bool:
    """Return whether all of the run's files are in `fetched_folder`."""
    return all((fetched_folder(spec) / file.name).is_file() for file in spec.files)


def assembled_folder(spec: ModelSpec, weights: Path) -> Path:
    """Return the folder for the run's small files with links to ``weights``, another folder of this machine."""
    place = sha256(os.fsencode(weights)).hexdigest()
    return Path(f"{fetched_folder(spec)}-{place[:_FILES_DIGITS]}")
