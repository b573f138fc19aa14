"""A made-up model in a folder, its entry in a manifest, and its pieces by hash. Nothing here can be loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from protocol.limits import MODEL_PIECE_BYTES
from protocol.run.model import ModelSpec, Sharing, file_of

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
FILES = {
    CONFIG: b'{"model_type": "opt"}',
    TOKENIZER: hashlib.shake_256(b"tokenizer").digest(5_000),
    WEIGHTS: hashlib.shake_256(b"weights").digest(3 * MODEL_PIECE_BYTES + 70_000),
}
SIZE = sum(map(len, FILES.values()))


def made_up_model(sharing: Sharing = Sharing.PEERS, model_id: str = "local:made-up") -> ModelSpec:
    """Its entry."""
    entries = {name: file_of(name, data) for name, data in FILES.items()}
    return ModelSpec(
        id=model_id,
        revision="",
        content=hashlib.sha256(b"content").hexdigest(),
        config=entries[CONFIG],
        weights=(entries[WEIGHTS],),
        tokenizer=(entries[TOKENIZER],),
        sharing=sharing,
    )


def write_model(folder: Path) -> Path:
    """Its files."""
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return folder


def pieces_of(data: bytes) -> list[bytes]:
    """The pieces of a file."""
    return [data[start : start + MODEL_PIECE_BYTES] for start in range(0, len(data), MODEL_PIECE_BYTES)]


def all_pieces() -> dict[str, bytes]:
    """Whatever neighbours may be asked for: pieces, and the lists of files with several."""
    found = [piece for data in FILES.values() for piece in pieces_of(data)]
    found += [b"".join(hashlib.sha256(piece).digest() for piece in pieces_of(data)) for data in FILES.values()]
    return {hashlib.sha256(piece).hexdigest(): piece for piece in found}
