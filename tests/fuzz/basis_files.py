"""Target ``basis``: a file is refused as BASIS, or encoding its integers gives it again and they keep their bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from protocol.errors import Reject
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import decode_basis_untrusted, encode_basis
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.vectors.basis_file_cases import TWO
from tests.vectors.runs import DENSE

_MAGIC = b"sfnode/basis/4\n\0"
_EXPONENTS = 5  # of DENSE: one for the target, and two for each of two tensors
_ENTRIES = 3 * (3 * 2) + 2 * 2 + 1 * 2  # the target and two U, and V of 2 and of 1 inputs


def _manifest(data: bytes) -> Manifest:
    """A run that names these bytes."""
    return replace(DENSE, method=replace(DENSE.method, basis_sha256=hashlib.sha256(data).hexdigest()))


def check_basis(data: bytes) -> None:
    """Once as the file that the manifest names, once as another."""
    numbers = [byte - 256 if byte > 127 else byte for byte in data[len(_MAGIC) :]]
    expected = data.startswith(_MAGIC) and len(numbers) == _EXPONENTS + _ENTRIES
    expected = expected and all(-60 <= exponent <= 60 for exponent in numbers[:_EXPONENTS])
    expected = expected and -128 not in numbers[_EXPONENTS:]
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
        assert encode_basis(content) == data
        assert content.target.shape == (3, 2)
        shapes = [(each.u.shape, None if each.v is None else each.v.shape) for each in content.tensors]
        assert shapes == [((3, 2), (2, 2)), ((3, 2), (1, 2))]
    assert reason in ("", "BASIS")
    return not reason


def basis_seeds() -> Iterator[bytes]:
    """A good file, its bounds, and each fault."""
    good = _MAGIC + b"\x3c\xc4\x00\x3c\xc4" + bytes(_ENTRIES - 2) + b"\x7f\x81"
    yield good
    yield good[:-1]
    yield good + b"\0"
    yield good.replace(b"basis/4", b"basis/3")
    yield TWO.encoded()  # for other tensors
    for offset, byte in ((14, 0), (16, 61), (16, 0xC3), (17, 0xC3), (20, 61), (20, 0x80), (21, 0x80), (30, 0x80)):
        yield good[:offset] + bytes([byte]) + good[offset + 1 :]
    yield b""


TARGETS = {"basis": Target(check=check_basis, seeds=basis_seeds)}
