"""Target ``basis``: a file is refused as BASIS, or it is what encoding its integers gives and they keep their bound."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from protocol.errors import Reject
from protocol.run.manifest import Manifest, checked
from protocol.subspace.basis_file import decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.manifests import manifest_data

_RANK, _LARGEST = 2, 8
_TENSORS = (
    {"name": "a", "kind": "matrix", "rows": 2, "cols": 1},
    {"name": "b", "kind": "vector", "rows": 1, "cols": 0},
)
_HEADER = b"sfnode/basis/1\n\0" + b"".join(n.to_bytes(4, "big") for n in (2, 2, 2, 1, 1, 0))


_METHOD = {"rank": _RANK, "basis": "published", "basis_sha256": "0" * 64, "basis_max": _LARGEST}
_RUN = checked({**manifest_data(**_METHOD), "tensors": list(_TENSORS)})


def _manifest(data: bytes) -> Manifest:
    """A run that names these bytes."""
    return replace(_RUN, method=replace(_RUN.method, basis_sha256=hashlib.sha256(data).hexdigest()))


def check_basis(data: bytes) -> None:
    """Once as the file that the manifest names, once as another."""
    expected = data[: len(_HEADER)] == _HEADER and len(data) == len(_HEADER) + 8
    entries = [byte - 256 if byte > 127 else byte for byte in data[len(_HEADER) :]]
    expected = expected and all(-_LARGEST <= entry <= _LARGEST for entry in entries)
    manifest = _manifest(data)
    assert _is_accepted(manifest, data) is expected
    assert not _is_accepted(manifest, data + b"\0") and not _is_accepted(_manifest(data + b"\0"), data)


def _is_accepted(manifest: Manifest, data: bytes) -> bool:
    try:
        bases = decode_basis_untrusted(manifest, data)
    except Reject as reject:
        reason = reason_of(reject)
    else:
        reason = ""
        assert encode_basis(_RANK, bases) == data
        assert [each.u.shape for each in bases] == [(2, 2), (1, 2)] and bases[1].v is None
    assert reason in ("", "BASIS")
    return not reason


def basis_seeds() -> Iterator[bytes]:
    """A good file, its largest entries, and each fault."""
    u, v = np.array([[1, -2], [3, -4]], np.int8), np.array([[5, -6]], np.int8)
    good = encode_basis(_RANK, [Basis(u=u, v=v), Basis(u=np.array([[8, -8]], np.int8), v=None)])
    yield good
    yield good[:-1]
    yield good + b"\0"
    yield good[:-1] + b"\xf7"
    yield good[:-1] + b"\x09"
    yield good[:-1] + b"\x80"
    yield good.replace(b"basis/1", b"basis/2")
    for offset in range(19, 40, 4):
        yield good[:offset] + bytes([good[offset] ^ 3]) + good[offset + 1 :]
    yield b""


TARGETS = {"basis": Target(check=check_basis, seeds=basis_seeds)}
