"""Vectors of the basis of a dense core (SPEC 4.6): files as they should be, and every way in which they should not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import EXP_MAX, MAGIC, BasisContent, decode_basis_untrusted, encode_basis
from tests.vectors.notation import Case, case, judged
from tests.vectors.runs import dense_run

Side: TypeAlias = tuple[list[list[int]], int]  # entries, exponent


@dataclass(frozen=True, kw_only=True)
class Sides:
    """U, and the V of each tensor. ``turned``: the numbers of the transposed ones."""

    u: Side
    v: tuple[Side, ...]
    turned: tuple[int, ...] = ()

    def encoded(self) -> bytes:
        """The file of this basis."""
        (u, u_exp), (v, v_exps) = self.u, zip(*self.v, strict=True)
        sides = tuple(np.array(each, np.int8) for each in v)
        return encode_basis(BasisContent(u=np.array(u, np.int8), u_exp=u_exp, v=sides, v_exps=tuple(v_exps)))

    def manifest(self, data: bytes) -> Manifest:
        """A run that names ``data`` and whose tensors have these shapes."""
        outputs, method = len(self.u[0]), {"rank": len(self.v[0][0][0]), "core_rows": len(self.u[0][0])}
        tensors = []
        for number, (v, _) in enumerate(self.v):
            is_turned = number in self.turned
            rows, cols = (len(v), outputs) if is_turned else (outputs, len(v))
            kind = "transposed" if is_turned else "matrix"
            tensors.append({"name": str(number), "kind": kind, "rows": rows, "cols": cols})
        named = {"basis_sha256": hashlib.sha256(data).hexdigest(), "energy_max": 200_000}
        return dense_run(method | named, tensors=tensors)


# Of SPEC 4.6: a 2 x 1 matrix and a transposed tensor of 3 x 2, with cores of 1 x 2.
EXAMPLE = Sides(u=([[3], [-4]], 2), v=(([[5, -6]], -7), ([[1, -2], [7, 8], [0, -1]], -3)), turned=(1,))
TWO = Sides(u=([[1, -2], [3, -4], [5, -6]], 1), v=(([[7, -8], [-1, 2]], -2), ([[-7, 8], [2, 5]], 0)), turned=(1,))


def basis_files() -> Iterator[Case]:
    """Cases of the function ``basis_file``."""
    good = {
        "example of SPEC 4.6": EXAMPLE,
        "a matrix and a transposed tensor": TWO,
        "a transposed tensor first": replace(TWO, turned=(0,)),
        "transposed tensors alone": replace(TWO, turned=(0, 1)),
        "largest entries, both signs": Sides(u=([[127, -127]], 0), v=(([[-127, 127], [0, 127]], 0),)),
        "largest exponents": Sides(u=([[1]], EXP_MAX), v=(([[1]], -EXP_MAX),)),
        "largest exponents, the other sign": Sides(u=([[1]], -EXP_MAX), v=(([[1]], EXP_MAX),)),
        "more rows than columns of the core": Sides(u=([[1, 2, 3]], 4), v=(([[5]], 6),)),
        "zeros": Sides(u=([[0]], 0), v=(([[0]], 0),)),
    }
    for name, sides in good.items():
        data = sides.encoded()
        yield _case(name, sides.manifest(data), data, is_good=True)
    data = TWO.encoded()
    for name, wrong in _faults(data).items():
        yield _case(name, TWO.manifest(wrong), wrong, is_good=False)
    yield _case("rule 4.6.1: another file", TWO.manifest(b""), data, is_good=False)


def _faults(data: bytes) -> dict[str, bytes]:
    def changed(offset: int, value: int) -> bytes:
        return data[:offset] + bytes([value & 255]) + data[offset + 1 :]

    return {
        "rule 4.6.2: no bytes": b"",
        "rule 4.6.2: the magic alone": MAGIC,
        "rule 4.6.2: another magic": data.replace(b"basis/3", b"basis/2"),
        "rule 4.6.2: a byte too few": data[:-1],
        "rule 4.6.2: a byte too many": data + b"\0",
        "rule 4.6.2: another U for each tensor": data[:25] + data[19:],
        "rule 4.6.3: the exponent of U above": changed(16, EXP_MAX + 1),
        "rule 4.6.3: the exponent of U below": changed(16, -EXP_MAX - 1),
        "rule 4.6.3: the exponent of the last V above": changed(18, EXP_MAX + 1),
        "rule 4.6.3: the exponent of the last V below": changed(18, -EXP_MAX - 1),
        "rule 4.6.3: an exponent of -128": changed(17, -128),
        "rule 4.6.3: an entry of -128, in U": changed(19, -128),
        "rule 4.6.3: an entry of -128, in the last V": data[:-1] + b"\x80",
    }


def _case(name: str, manifest: Manifest, data: bytes, *, is_good: bool) -> Case:
    def members() -> dict[str, Any]:
        content = decode_basis_untrusted(manifest, data)
        assert encode_basis(content) == data
        return {"bases": [_plain(content, index) for index in range(len(manifest.tensors))]}

    found = judged(members)
    assert found["reason"] == (None if is_good else "BASIS"), (name, found)
    method = {field: getattr(manifest.method, field) for field in ("rank", "basis_sha256", "core_rows")}
    tensors = [{"kind": each.kind.value, "rows": each.rows, "cols": each.cols} for each in manifest.tensors]
    return case(f"basis file: {name}", "basis_file", {"method": method, "tensors": tensors, "data": data.hex()}, found)


def _plain(content: BasisContent, index: int) -> dict[str, Any]:
    basis = content.basis(index)
    assert basis.v is not None
    return {"u": basis.u.tolist(), "v": basis.v.tolist(), "u_exp": basis.u_exp, "v_exp": basis.v_exp}
