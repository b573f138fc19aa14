"""Vectors of published bases (SPEC 4.6): files as they should be, and every way in which they should not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from protocol.run.manifest import Manifest, checked
from protocol.subspace.basis_file import MAGIC, BasisContent, Start, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from tests.support.manifests import manifest_data
from tests.vectors.notation import Case, case, judged

Rows: TypeAlias = list[list[int]]
Sides: TypeAlias = tuple[Rows, Rows | None]

EXAMPLE: tuple[Sides, ...] = (([[1, -2], [3, -4]], [[5, -6]]), ([[7, -8]], None))  # of SPEC 4.6
START: tuple[int, tuple[Sides | None, ...]] = (-3, (([[2], [-1]], [[4]]), None))
Started: TypeAlias = tuple[int, Sequence[Sides | None]]


def basis_files() -> list[Case]:
    """Cases of the function ``basis_file``."""
    return [*_good(), *_faults()]


def encoded(sides: Sequence[Sides], start: Started | None = None) -> bytes:
    """The file of these bases."""
    found = None
    if start is not None:
        exp, products = start
        found = Start(exp=exp, products=tuple(None if each is None else _basis(each) for each in products))
    content = BasisContent(bases=tuple(_basis(each) for each in sides), start=found)
    return encode_basis(len(sides[0][0][0]), content)


def _basis(sides: Sides) -> Basis:
    u, v = sides
    return Basis(u=_int8(u), v=None if v is None else _int8(v))


def _int8(rows: Rows) -> Any:
    return np.array(rows, dtype=np.int8)


def manifest_for(sides: Sequence[Sides], data: bytes, largest: int, start_rank: int = 0) -> Manifest:
    """A run that names ``data`` and whose tensors have these shapes."""
    rank = len(sides[0][0][0])
    found = manifest_data(
        rank=rank,
        basis="published",
        basis_sha256=hashlib.sha256(data).hexdigest(),
        basis_max=largest,
        start_rank=start_rank,
        clip=1,
    )
    tensors = [
        {"name": str(index), "kind": "vector" if v is None else "matrix", "rows": len(u), "cols": len(v or ())}
        for index, (u, v) in enumerate(sides)
    ]
    return checked({**found, "tensors": tensors, "authors_max": 4})


def _case(name: str, manifest: Manifest, data: bytes, *, is_good: bool) -> Case:
    def members() -> dict[str, Any]:
        content = decode_basis_untrusted(manifest, data)
        found: dict[str, Any] = {"bases": [_plain(each) for each in content.bases]}
        if content.start is not None:
            found["start"] = {
                "exp": content.start.exp,
                "products": [None if each is None else _plain(each) for each in content.start.products],
            }
        return found

    found = judged(members)
    assert found["reason"] == (None if is_good else "BASIS"), (name, found)
    method = manifest.method
    chosen = {
        "rank": method.rank,
        "basis_sha256": method.basis_sha256,
        "basis_max": method.basis_max,
        "start_rank": method.start_rank,
    }
    tensors = [{"kind": each.kind.value, "rows": each.rows, "cols": each.cols} for each in manifest.tensors]
    return case(f"basis file: {name}", "basis_file", {"method": chosen, "tensors": tensors, "data": data.hex()}, found)


def _plain(basis: Basis) -> dict[str, Any]:
    return {"u": basis.u.tolist(), "v": None if basis.v is None else basis.v.tolist()}


def _good() -> Iterator[Case]:
    chosen: dict[str, tuple[Sequence[Sides], int]] = {
        "no start": (EXAMPLE, 8),
        "one entry, and it is zero": ([([[0]], None)], 1),
        "largest entries, both signs": ([([[127, -127]], [[-127, 127]])], 127),
        "a matrix between vectors": ([([[1]], None), ([[2], [3]], [[4]]), ([[5]], None)], 100),
        "r = 4, not square": ([([[1, 2, 3, 4]] * 3, [[-1, -2, -3, -4]] * 2)], 4),
    }
    for name, (sides, largest) in chosen.items():
        data = encoded(sides)
        yield _case(name, manifest_for(sides, data, largest), data, is_good=True)
    wide: Started = (-60, (([[2, 1, 8], [-1, 0, -8]], [[4, 0, 0]]), None))
    for name, start, start_rank in (
        ("example of SPEC 4.6", START, 1),
        ("a start wider than the basis, at its lowest exponent", wide, 3),
        ("a start at its highest exponent", (0, START[1]), 1),
    ):
        data = encoded(EXAMPLE, start)
        yield _case(name, manifest_for(EXAMPLE, data, 8, start_rank), data, is_good=True)


def _faults() -> Iterator[Case]:
    good = encoded(EXAMPLE, START)
    wrong = {
        "rule 4.6.2: no bytes": b"",
        "rule 4.6.2: the magic alone": MAGIC,
        "rule 4.6.2: another magic": good.replace(b"basis/2", b"basis/1"),
        "rule 4.6.2: a byte too few": good[:-1],
        "rule 4.6.2: a byte too many": good + b"\0",
        "rule 4.6.2: another rank": _changed(good, 16, 1),
        "rule 4.6.2: another number of tensors": _changed(good, 20, 1),
        "rule 4.6.2: another rank of the start": _changed(good, 24, 2),
        "rule 4.6.2: other rows": _changed(good, 32, 1),
        "rule 4.6.2: other columns": _changed(good, 36, 2),
        "rule 4.6.2: numbers in little-endian": good[:16] + b"".join(_little(good[16:48])) + good[48:],
        "rule 4.6.2: another order of tensors": encoded(EXAMPLE[::-1], (START[0], START[1][::-1])),
        "rule 4.6.2: no start": encoded(EXAMPLE),
        "rule 4.6.3: an exponent below": _changed(good, 28, (1 << 32) - 61),
        "rule 4.6.3: an exponent above": _changed(good, 28, 1),
        "rule 4.6.4: an entry above": _changed(good, 52, 9, size=1),
        "rule 4.6.4: an entry below": good[:-1] + b"\xf7",
    }
    for name, data in wrong.items():
        yield _case(name, manifest_for(EXAMPLE, data, 8, 1), data, is_good=False)
    yield _case("rule 4.6.2: a start in a run without one", manifest_for(EXAMPLE, good, 8), good, is_good=False)
    plain = _changed(encoded(EXAMPLE), 28, (1 << 32) - 1)
    yield _case("rule 4.6.3: an exponent without a start", manifest_for(EXAMPLE, plain, 8), plain, is_good=False)
    lowest = good[:-1] + b"\x80"
    yield _case("rule 4.6.4: -128", manifest_for(EXAMPLE, lowest, 127, 1), lowest, is_good=False)
    yield _case("rule 4.6.1: another file", manifest_for(EXAMPLE, lowest, 8, 1), good, is_good=False)


def _changed(data: bytes, offset: int, number: int, *, size: int = 4) -> bytes:
    return data[:offset] + number.to_bytes(size, "big") + data[offset + size :]


def _little(numbers: bytes) -> Iterator[bytes]:
    return (numbers[start : start + 4][::-1] for start in range(0, len(numbers), 4))
