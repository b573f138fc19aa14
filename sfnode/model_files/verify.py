"""A model folder and a run's manifest: describes the owner's files for a new manifest, and compares others with it."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path

from protocol.errors import OperatorError
from protocol.limits import MODEL_PIECE_BYTES
from protocol.run import FileSpec, ModelSpec, Sharing, TensorSpec
from sfnode.model_files import model_folder as files
from sfnode.model_files.model_folder import CONFIG_FILE, ModelFolder, tokenizer_files, weight_files
from sfnode.storage import disk

_LENGTH_BYTES = 8  # of the number that a safetensors file begins with: the length of its header
_IN_LAYER = re.compile(r"[0-9]+\..*")  # what stands before it may differ between a file and the loaded model
_HEADER_BYTES_MAX = 4 << 20  # 30,000 tensors; this runs in the node, and parsed JSON takes 20 times its length


def describe_files(folder: ModelFolder, content: str, sharing: Sharing) -> ModelSpec:
    """Return the manifest's entry for a model; ``content`` is the `weights_digest` of its weights. Reads all files.

    OperatorError: a file is missing or cannot be read.
    """
    found_tokenizer(folder.path)
    return ModelSpec(
        id=folder.id,
        revision=folder.revision,
        content=content,
        config=describe_file(folder.path, CONFIG_FILE),
        weights=tuple(describe_file(folder.path, name) for name in weight_files(folder.path)),
        tokenizer=tuple(describe_file(folder.path, name) for name in files.files_beside(folder.path)),
        sharing=sharing,
    )


def found_tokenizer(folder: Path) -> tuple[str, ...]:
    """Return the names of the tokenizer's files in a model's folder. OperatorError: there is none."""
    if names := tokenizer_files(folder):
        return names
    raise OperatorError(f"{folder} holds no tokenizer ({', '.join(files.TOKENIZER_FILES[:3])} ...): copy it there")


def check_definition(folder: Path, spec: ModelSpec) -> None:
    """Raise OperatorError unless ``folder`` has config.json and all files of ``spec.tokenizer``, and no more of these.

    Files of other kinds may be there: they are not loaded.
    """
    for expected in (spec.config, *spec.tokenizer):
        if not files.is_definition(expected.name):
            raise OperatorError(
                f"the run's model {spec.id} has a tokenizer file {expected.name}, which this sfnode does not load: "
                "install the release that the run was made with"
            )
        path = files.place_of(folder, expected.name)
        if not path.is_file():
            raise OperatorError(f"{path} is missing, but the run's model {spec.id} has it; use the run's model")
        found = hash_file(path)
        if found != expected.sha256:
            raise OperatorError(
                f"{path} is not the run's file: SHA-256 {found[:16]}..., the run of {spec.id} needs "
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
    """Return the SHA-256 of a file, in hex. OperatorError if it cannot be read, or is a Git LFS pointer."""
    disk.check_is_content(path)
    with disk.os_errors(f"read {path}"), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def describe_file(folder: Path, name: str) -> FileSpec:
    """Return the manifest's entry for a file of a model's folder. OperatorError if it cannot be read."""
    path = files.place_of(folder, name)
    disk.check_is_content(path)
    with disk.os_errors(f"read {path}"):
        length, whole, listed = hash_in_pieces(path)
    return FileSpec(name=name, bytes=length, sha256=whole, pieces=sha256(listed).hexdigest())


def hash_in_pieces(path: Path, rest_s: float = 0.0) -> tuple[int, str, bytes]:
    """Return a file's length, its SHA-256 in hex, and the concatenated hashes of its pieces. OSError.

    It pauses for ``rest_s`` after each piece.
    """
    whole, listed = sha256(), bytearray()
    with path.open("rb") as file:
        while piece := file.read(MODEL_PIECE_BYTES):
            whole.update(piece)
            listed += sha256(piece).digest()
            time.sleep(rest_s)
        return file.tell(), whole.hexdigest(), bytes(listed)


def check_shapes(folder: Path, tensors: Sequence[TensorSpec], model: str, *, are_all_there: bool = False) -> None:
    """Raise OperatorError if a tensor of the run has another shape in ``folder``, which is then another model.

    ``are_all_there``: refuse a folder, too, that lacks one of a layer, by its name from the layer's number on.

    It takes a second, and loads nothing. Equal shapes do not prove that it is the right model: the worker compares the
    weights. The worker also reports files that cannot be read, which are skipped here.
    """
    found: dict[str, list[int]] = {}
    with suppress(OperatorError, OSError, ValueError):
        paths = (folder / name for name in weight_files(folder) if name.endswith(".safetensors"))
        found = {name: shape for path in paths for name, shape in tensor_shapes(path, _HEADER_BYTES_MAX)}
    for tensor in tensors:
        wanted = [tensor.rows, tensor.cols] if tensor.cols else [tensor.rows]
        if tensor.name in found and found[tensor.name] != wanted:
            raise OperatorError(
                f"--model {folder} is not the run's model {model}: its {tensor.name} has the shape "
                f"{found[tensor.name]}, and the run's has {wanted}. Use the run's model"
            )
    stored = {name[0] for name in map(_IN_LAYER.search, found) if name}
    if are_all_there and found:
        for tensor in tensors:
            if (name := _IN_LAYER.search(tensor.name)) and name[0] not in stored:
                raise OperatorError(
                    f"{folder} holds another model than the run's, {model}: it has no {tensor.name}. Leave --model out "
                    "(`sfnode config unset model`), or name the right folder"
                )


def tensor_shapes(path: Path, header_bytes_max: int) -> Iterator[tuple[str, list[int]]]:
    """Yield the names and shapes of the tensors of a safetensors file. OSError; ValueError: it is none."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > header_bytes_max:
            raise ValueError("its header is too long")
        try:
            header = json.loads(file.read(length))
        except RecursionError:
            raise ValueError("its header is nested too deep") from None
    for name, entry in header.items() if isinstance(header, dict) else ():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if isinstance(shape, list) and all(type(size) is int for size in shape):
            yield name, shape
