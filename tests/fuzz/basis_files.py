"""Target ``basis``: a file is refused as BASIS, or it is what encoding its integers gives and they keep their bound."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from protocol.errors import Reject
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import BasisContent, Start, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.manifests import small_manifest
from tests.vectors.runs import DENSE

_RANK, _LARGEST, _START_RANK = 2, 8, 1
_TENSORS = (
    {"name": "a", "kind": "matrix", "rows": 2, "cols": 1},
    {"name": "b", "kind": "vector", "rows": 1, "cols": 0},
)
_HEADER = b"sfnode/basis/2\n\0" + b"".join(n.to_bytes(4, "big") for n in (2, 2, 1))
_SHAPES = b"".join(n.to_bytes(4, "big") for n in (2, 1, 1, 0))
_ENTRIES = len(_HEADER) + 4 + len(_SHAPES)  # the start's exponent is between them


_METHOD = {
    "rank": _RANK,
    "basis": "published",
    "basis_sha256": "0" * 64,
    "basis_max": _LARGEST,
    "start_rank": _START_RANK,
}
_RUN = small_manifest(**_METHOD, tensors=list(_TENSORS))


def _manifest(data: bytes) -> Manifest:
    """A run that names these bytes."""
    return replace(_RUN, method=replace(_RUN.method, basis_sha256=hashlib.sha256(data).hexdigest()))


def check_basis(data: bytes) -> None:
    """Once as the file that the manifest names, once as another."""
    expected = data.startswith(_HEADER) and data[_ENTRIES - len(_SHAPES) : _ENTRIES] == _SHAPES
    expected = expected and len(data) == _ENTRIES + 8 + 3
    exponent = int.from_bytes(data[len(_HEADER) : len(_HEADER) + 4], "big", signed=True)
    expected = expected and -60 <= exponent <= 0
    entries = [byte - 256 if byte > 127 else byte for byte in data[_ENTRIES:]]
    expected = expected and all(-_LARGEST <= entry <= _LARGEST for entry in entries)
    manifest = _manifest(data)
    assert _is_accepted(manifest, data) is expected
    assert not _is_accepted(manifest, data + b"\0") and not _is_accepted(_manifest(data + b"\0"), data)


def _is_accepted(manifest: Manifest, data: bytes) -> bool:
    try:
        content = decode_basis_untrusted(manifest, data)
    except Reject as reject:
        reason = reason_of(reject)
    else:
        reason = ""
        assert encode_basis(_RANK, content) == data
        assert [each.u.shape for each in content.bases] == [(2, 2), (1, 2)] and content.bases[1].v is None
        assert content.start is not None and content.start.products[1] is None
    assert reason in ("", "BASIS")
    return not reason


def basis_seeds() -> Iterator[bytes]:
    """A good file, its largest entries, and each fault."""
    u, v = np.array([[1, -2], [3, -4]], np.int8), np.array([[5, -6]], np.int8)
    bases = (Basis(u=u, v=v), Basis(u=np.array([[8, -8]], np.int8), v=None))
    start = Start(exp=-7, products=(Basis(u=u[:, :1], v=v[:, :1]), None))
    good = encode_basis(_RANK, BasisContent(bases=bases, start=start))
    yield good
    yield good[:-1]
    yield good + b"\0"
    yield good[:-1] + b"\xf7"
    yield good[:-1] + b"\x09"
    yield good[:-1] + b"\x80"
    yield good.replace(b"basis/2", b"basis/1")
    for offset in range(19, 48, 4):
        yield good[:offset] + bytes([good[offset] ^ 3]) + good[offset + 1 :]
    yield b""


# --- of a dense core


_DENSE_HEADER = b"sfnode/dense/1\n\0" + b"".join(n.to_bytes(4, "big") for n in (2, 2, 2))
_DENSE_SHAPES = ((3, 2), (2, 1))  # of DENSE; then follow two exponents each


def check_dense_basis(data: bytes) -> None:
    """The same for the file of SPEC 4.7."""
    expected = data.startswith(_DENSE_HEADER) and len(data) == 28 + 2 * 10 + 2 * 5 + 2 * 3
    for number, (rows, cols) in enumerate(_DENSE_SHAPES):
        told = data[28 + 10 * number : 38 + 10 * number]
        expected = expected and told[:8] == rows.to_bytes(4, "big") + cols.to_bytes(4, "big")
        expected = expected and all(abs(byte - 256 if byte > 127 else byte) <= 60 for byte in told[8:])
    entries = [byte - 256 if byte > 127 else byte for byte in data[48:]]
    expected = expected and all(-8 <= entry <= 8 for entry in entries)
    named = replace(DENSE.method, basis_sha256=hashlib.sha256(data).hexdigest())
    found = None
    try:
        found = decode_basis_untrusted(replace(DENSE, method=named), data)
    except Reject as reject:
        reason = reason_of(reject)
    assert expected == (found is not None)
    assert reason == "BASIS" if found is None else encode_basis(2, found) == data


def dense_basis_seeds() -> Iterator[bytes]:
    """A good file, its bounds, and each fault."""
    good = _DENSE_HEADER + b"".join(
        rows.to_bytes(4, "big") + cols.to_bytes(4, "big") + b"\x3c\xc4" for rows, cols in _DENSE_SHAPES
    )
    good += bytes(15) + b"\x08"
    yield good
    yield good[:-1]
    yield good + b"\0"
    for offset, byte in ((14, 0), (19, 1), (23, 1), (27, 1), (31, 2), (36, 61), (47, 0xC3), (48, 0x80), (63, 9)):
        yield good[:offset] + bytes([byte]) + good[offset + 1 :]


TARGETS = {
    "dense-basis": Target(check=check_dense_basis, seeds=dense_basis_seeds),
    "basis": Target(check=check_basis, seeds=basis_seeds),
}
