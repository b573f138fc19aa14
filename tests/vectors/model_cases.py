"""Vectors of a model's content and of its files' pieces (SPEC 1.5)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import prod

from protocol.limits import MODEL_PIECE_BYTES
from protocol.run.model import file_of, weights_digest
from tests.vectors.notation import Case, Document, case, document

Tensors = Mapping[str, tuple[Sequence[int], Sequence[float]]]

_EXAMPLE: Tensors = {"b": ((1,), (3.0,)), "a": ((2, 2), (1.0, -2.0, 0.5, 0.0))}


def models() -> Document:
    """models.json"""
    return document("What a model's weights are, and the pieces of its files: SPEC 1.5", [*_contents(), *_pieces()])


def _contents() -> list[Case]:
    chosen: dict[str, Tensors] = {
        "no tensor": {},
        "the example of SPEC 1.5": _EXAMPLE,
        "the same numbers in another shape": {**_EXAMPLE, "a": ((4, 1), _EXAMPLE["a"][1])},
        "the same numbers under other names": {"c": _EXAMPLE["b"], "a": _EXAMPLE["a"]},
        "minus zero": {**_EXAMPLE, "a": ((2, 2), (1.0, -2.0, 0.5, -0.0))},
        "a number without dimensions": {"scale": ((), (0.125,))},
        "a number that is exact in 16 bits and one that is not": {"a": ((2,), (1.0078125, 1.0000001192092896))},
        "names in the order of their UTF-8": {"Z": ((1,), (1.0,)), "a": ((1,), (2.0,)), "\u00e9": ((1,), (3.0,))},
        "a name above U+FFFF after one below": {"\uffff": ((1,), (1.0,)), "\U00010000": ((1,), (2.0,))},
    }
    return [case(f"content: {name}", "content", _given(tensors), _content(tensors)) for name, tensors in chosen.items()]


def _given(tensors: Tensors) -> dict[str, object]:
    rows = [
        {"name": name, "shape": list(shape), "values": [struct.pack(">f", value).hex() for value in values]}
        for name, (shape, values) in tensors.items()
    ]
    return {"tensors": rows}


def _content(tensors: Tensors) -> dict[str, object]:
    assert all(prod(shape) == len(values) for shape, values in tensors.values())
    packed = {name: struct.pack(f"<{len(values)}f", *values) for name, (_, values) in tensors.items()}
    hashed = {name: (tensors[name][0], sha256(data).digest()) for name, data in packed.items()}
    return {"content": weights_digest(hashed)}


def _pieces() -> list[Case]:
    lengths = (0, 1, MODEL_PIECE_BYTES - 1, MODEL_PIECE_BYTES, MODEL_PIECE_BYTES + 1, 3 * MODEL_PIECE_BYTES)
    return [_pieces_of(length) for length in lengths]


def _pieces_of(length: int) -> Case:
    found = file_of("x", b"\x5a" * length)
    expected: dict[str, object] = {"bytes": found.bytes, "sha256": found.sha256, "pieces": found.pieces}
    return case(f"file: {length} bytes", "file", {"data": {"repeat": "5a", "times": length}}, expected)
