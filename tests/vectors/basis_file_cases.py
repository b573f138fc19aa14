"""Vectors of the basis of a dense core (SPEC 4.6): files as they should be, and every way in which they should not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import EXP_MAX, MAGIC, BasisContent, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from tests.vectors.notation import Case, case, judged
from tests.vectors.runs import dense_run

Side: TypeAlias = tuple[list[list[int]], int]  # entries, exponent


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The target, and U and V of each tensor. ``turned``: the numbers of the transposed ones."""

    target: Side
    tensors: tuple[tuple[Side, Side], ...]
    turned: tuple[int, ...] = ()

    def encoded(self) -> bytes:
        """The file of this basis."""
        tensors = tuple(
            Basis(u=np.array(u, np.int8), v=np.array(v, np.int8), u_exp=u_exp, v_exp=v_exp)
            for (u, u_exp), (v, v_exp) in self.tensors
        )
        target, target_exp = self.target
        return encode_basis(BasisContent(target=np.array(target, np.int8), target_exp=target_exp, tensors=tensors))

    def manifest(self, data: bytes) -> Manifest:
        """A run that names ``data`` and whose tensors have these shapes."""
        outputs = len(self.target[0])
        method = {"rank": len(self.tensors[0][1][0][0]), "core_rows": len(self.target[0][0])}
        tensors = []
        for number, (_, (v, _exp)) in enumerate(self.tensors):
            is_turned = number in self.turned
            rows, cols = (len(v), outputs) if is_turned else (outputs, len(v))
            kind = "transposed" if is_turned else "matrix"
            tensors.append({"name": str(number), "kind": kind, "rows": rows, "cols": cols})
        named = {"basis_sha256": hashlib.sha256(data).hexdigest(), "energy_max": 200_000}
        return dense_run(method | named, tensors=tensors)


# Of SPEC 4.6: a 2 x 1 matrix and a transposed tensor of 3 x 2, with cores of 1 x 2.
EXAMPLE = Sides(
    target=([[2], [-3]], 1),
    tensors=((([[3], [-4]], 2), ([[5, -6]], -7)), (([[-1], [9]], 0), ([[1, -2], [7, 8], [0, -1]], -3))),
    turned=(1,),
)
TWO = Sides(
    target=([[9, 8], [-7, 6], [5, 0]], -3),
    tensors=(
        (([[1, -2], [3, -4], [5, -6]], 1), ([[7, -8], [-1, 2]], -2)),
        (([[4, 2], [-9, 3], [6, -1]], 3), ([[-7, 8], [2, 5]], 0)),
    ),
    turned=(1,),
)


def _one(target: Side, u: Side, v: Side) -> Sides:
    """The basis of one matrix."""
    return Sides(target=target, tensors=((u, v),))


def basis_files() -> Iterator[Case]:
    """Cases of the function ``basis_file``."""
    good = {
        "example of SPEC 4.6": EXAMPLE,
        "a matrix and a transposed tensor": TWO,
        "a transposed tensor first": replace(TWO, turned=(0,)),
        "transposed tensors alone": replace(TWO, turned=(0, 1)),
        "largest entries, both signs": _one(([[-127, 127]], 0), ([[127, -127]], 0), ([[-127, 127], [0, 127]], 0)),
        "largest exponents": _one(([[1]], EXP_MAX), ([[1]], EXP_MAX), ([[1]], -EXP_MAX)),
        "largest exponents, the other sign": _one(([[1]], -EXP_MAX), ([[1]], -EXP_MAX), ([[1]], EXP_MAX)),
        "more rows than columns of the core": _one(([[7, 8, 9]], 0), ([[1, 2, 3]], 4), ([[5]], 6)),
        "zeros": _one(([[0]], 0), ([[0]], 0), ([[0]], 0)),
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
        "rule 4.6.2: another magic": data.replace(b"basis/4", b"basis/3"),
        "rule 4.6.2: a byte too few": data[:-1],
        "rule 4.6.2: a byte too many": data + b"\0",
        "rule 4.6.2: one U for all tensors": data[:-10] + data[-4:],
        "rule 4.6.3: the target's exponent above": changed(16, EXP_MAX + 1),
        "rule 4.6.3: the target's exponent below": changed(16, -EXP_MAX - 1),
        "rule 4.6.3: the exponent of the first U above": changed(17, EXP_MAX + 1),
        "rule 4.6.3: the exponent of the last V above": changed(20, EXP_MAX + 1),
        "rule 4.6.3: an exponent of -128": changed(18, -128),
        "rule 4.6.3: an entry of -128, in the target": changed(21, -128),
        "rule 4.6.3: an entry of -128, in the first U": changed(27, -128),
        "rule 4.6.3: an entry of -128, in the last V": data[:-1] + b"\x80",
    }


def _case(name: str, manifest: Manifest, data: bytes, *, is_good: bool) -> Case:
    def members() -> dict[str, Any]:
        content = decode_basis_untrusted(manifest, data)
        assert encode_basis(content) == data
        target = {"target": content.target.tolist(), "target_exp": content.target_exp}
        return target | {"bases": [_plain(content, index) for index in range(len(manifest.tensors))]}

    found = judged(members)
    assert found["reason"] == (None if is_good else "BASIS"), (name, found)
    method = {field: getattr(manifest.method, field) for field in ("rank", "basis_sha256", "core_rows")}
    tensors = [{"kind": each.kind.value, "rows": each.rows, "cols": each.cols} for each in manifest.tensors]
    return case(f"basis file: {name}", "basis_file", {"method": method, "tensors": tensors, "data": data.hex()}, found)


def _plain(content: BasisContent, index: int) -> dict[str, Any]:
    basis = content.tensors[index]
    assert basis.v is not None
    return {"u": basis.u.tolist(), "v": basis.v.tolist(), "u_exp": basis.u_exp, "v_exp": basis.v_exp}
