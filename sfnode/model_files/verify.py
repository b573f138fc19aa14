"""Compares a model folder with a run's manifest, and describes the owner's files for a new manifest."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from protocol.limits import MODEL_PIECE_BYTES
from protocol.run import FileSpec, ModelSpec, Sharing
from sfnode.model_files.folder import CONFIG_FILE, TOKENIZER_FILES, ModelFolder, tokenizer_files, weight_files
from sfnode.storage import describe_os_error

_CHUNK_BYTES: Final = 1 << 20


def describe_files(folder: ModelFolder, content: str, sharing: Sharing) -> ModelSpec:
    """Return the manifest's entry for a model; ``content`` is the `weights_digest` of its weights. Reads all files.

    OperatorError: a file is missing or cannot be read.
    """
    tokenizer = found_tokenizer(folder.path)
    return ModelSpec(
        id=folder.id,
        revision=folder.revision,
        content=content,
        config=describe_file(folder.path, CONFIG_FILE),
        weights=tuple(describe_file(folder.path, name) for name in weight_files(folder.path)),
        tokenizer=tuple(describe_file(folder.path, name) for name in tokenizer),
        sharing=sharing,
    )


def found_tokenizer(folder: Path) -> tuple[str, ...]:
    """Return the names of the tokenizer's files in a model's folder. OperatorError: there is none."""
    names = tuple(tokenizer_files(folder))
    if not names:
        raise OperatorError(f"{folder} holds no tokenizer ({', '.join(TOKENIZER_FILES[:3])} ...): copy it there")
    return names


def check_definition(folder: Path, spec: ModelSpec) -> None:
    """Raise OperatorError unless config.json and the tokenizer in ``folder`` are exactly the files of ``spec``.

    Files of other kinds may be there: they are not loaded.
    """
    for expected in (spec.config, *spec.tokenizer):
        if expected.name not in (CONFIG_FILE, *TOKENIZER_FILES):
            raise OperatorError(
                f"the run's model {spec.id} has a tokenizer file {expected.name}, which this sfnode does not load: "
                "install the release that the run was made with"
            )
        if not (folder / expected.name).is_file():
            raise OperatorError(
                f"{folder / expected.name} is missing, but the run's model {spec.id} has it; use the run's model"
            )
        found = hash_file(folder / expected.name)
        if found != expected.sha256:
            raise OperatorError(
                f"{folder / expected.name} is not the run's file: SHA-256 {found[:16]}..., the run of {spec.id} needs "
                f"{expected.sha256[:16]}...; use the run's model (revision {spec.revision or 'none'})"
            )
    named = {expected.name for expected in spec.tokenizer}
    for name in tokenizer_files(folder):
        if name not in named:
            raise OperatorError(
                f"{folder / name} is not a file of the run's model {spec.id}, but would be loaded with it: remove it"
            )


def has_weight_files(folder: Path, spec: ModelSpec) -> bool:
    """Return whether the weight files in ``folder`` are exactly the files of ``spec``, and so hold the run's weights.

    Other files may hold the same weights, which only `content` shows. OperatorError if one is missing.
    """
    if {*weight_files(folder)} != {expected.name for expected in spec.weights}:
        return False
    paths = [(folder / expected.name, expected) for expected in spec.weights]
    if any(path.stat().st_size != expected.bytes for path, expected in paths):
        return False
    return all(hash_file(path) == expected.sha256 for path, expected in paths)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex. OperatorError if it cannot be read."""
    hasher = sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                hasher.update(chunk)
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {describe_os_error(error)}") from None
    return hasher.hexdigest()


def describe_file(folder: Path, name: str) -> FileSpec:
    """Return the manifest's entry for ``folder / name``. OperatorError if it cannot be read."""
    whole, listed, length = sha256(), bytearray(), 0
    try:
        with (folder / name).open("rb") as file:
            while piece := file.read(MODEL_PIECE_BYTES):
                whole.update(piece)
                listed += sha256(piece).digest()
                length += len(piece)
    except OSError as error:
        raise OperatorError(f"{folder / name} cannot be read: {describe_os_error(error)}") from None
    return FileSpec(name=name, bytes=length, sha256=whole.hexdigest(), pieces=sha256(listed).hexdigest())
