"""Vectors of dense cores: the file of their basis and the view (SPEC 4.7), and the numbers of a message (SPEC 5.6)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from protocol.errors import NumericError
from protocol.limits import DENSE_EXP_MAX
from protocol.run.manifest import Manifest
from protocol.state.coefficients import dense_core
from protocol.subspace.bases import Bases, Published
from protocol.subspace.basis_file import DENSE_MAGIC, BasisContent, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from protocol.subspace.quantisation import quantise_dense
from sfnode.training.model.folding import fold_weights
from tests.vectors.notation import Case, case, float_text, judged
from tests.vectors.runs import DENSE, constant, dense_run

Side = tuple[list[list[int]], int]  # entries, exponent
Tensors = Sequence[tuple[Side, Side]]

# Of SPEC 4.7: a 2 x 1 matrix with a core of 1 x 2.
EXAMPLE: Tensors = ((([[3], [-4]], 2), ([[5, -6]], -7)),)
_TWO: Tensors = (
    (([[1, -2], [3, -4], [5, -6]], 1), ([[7, -8], [-1, 2]], -2)),
    (([[3, 4], [5, 6]], -3), ([[-7, 8]], 0)),
)
_LATER: Tensors = (
    (([[2, 2], [-3, 3], [1, 0]], 0), ([[1, 1], [0, 5]], -3)),
    (([[1, 0], [0, 1]], -1), ([[4, -4]], -1)),
)


def encoded(tensors: Tensors) -> bytes:
    """The file of a dense basis."""
    bases = tuple(
        Basis(u=np.array(u, np.int8), v=np.array(v, np.int8), u_exp=u_exp, v_exp=v_exp)
        for (u, u_exp), (v, v_exp) in tensors
    )
    (first, _), (second, _) = tensors[0]
    return encode_basis(len(second[0]), BasisContent(bases=bases, core_rows=len(first[0])))


def manifest_of(tensors: Tensors, data: bytes, largest: int) -> Manifest:
    """A run that names ``data`` and whose tensors have these shapes."""
    (first, _), (second, _) = tensors[0]
    method: dict[str, Any] = {"rank": len(second[0]), "core_rows": len(first[0]), "basis_max": largest}
    method |= {"basis_sha256": hashlib.sha256(data).hexdigest(), "energy_max": 200_000}
    shapes = [
        {"name": str(number), "kind": "matrix", "rows": len(u), "cols": len(v)}
        for number, ((u, _), (v, _)) in enumerate(tensors)
    ]
    return dense_run(method, tensors=shapes)


# --- the file


def dense_basis_files() -> Iterator[Case]:
    """Cases of the function ``basis_file``."""
    exponents: Tensors = ((([[1]], DENSE_EXP_MAX), ([[1]], -DENSE_EXP_MAX)),)
    good: dict[str, tuple[Tensors, int]] = {
        "example of SPEC 4.7": (EXAMPLE, 6),
        "two matrices": (_TWO, 8),
        "largest entries, both signs": ((((([[127, -127]]), 0), ([[-127, 127], [0, 127]], 0)),), 127),
        "largest exponents": (exponents, 1),
        "largest exponents, the other sign": ((((([[1]]), -DENSE_EXP_MAX), ([[1]], DENSE_EXP_MAX)),), 1),
        "more rows than columns of the core": ((((([[1, 2, 3]]), 4), ([[5]], 6)),), 9),
    }
    for name, (tensors, largest) in good.items():
        data = encoded(tensors)
        yield _file(name, manifest_of(tensors, data, largest), data, is_good=True)
    data = encoded(_TWO)
    for name, wrong in _faults(data).items():
        yield _file(name, manifest_of(_TWO, wrong, 8), wrong, is_good=False)
    yield _file("rule 4.6.1: another file", manifest_of(_TWO, b"", 8), data, is_good=False)
    lowest = data[:-1] + b"\x80"
    yield _file("rule 4.7.2: -128", manifest_of(_TWO, lowest, 127), lowest, is_good=False)


def _faults(data: bytes) -> dict[str, bytes]:
    def changed(offset: int, value: int) -> bytes:
        return data[:offset] + bytes([value & 255]) + data[offset + 1 :]

    return {
        "rule 4.7.1: no bytes": b"",
        "rule 4.7.1: the magic alone": DENSE_MAGIC,
        "rule 4.7.1: the magic of 4.6": b"sfnode/basis/2\n\0" + data[16:],
        "rule 4.7.1: another magic": data.replace(b"dense/1", b"dense/2"),
        "rule 4.7.1: a byte too few": data[:-1],
        "rule 4.7.1: a byte too many": data + b"\0",
        "rule 4.7.1: another rank": changed(19, 4),
        "rule 4.7.1: another number of tensors": changed(23, 1),
        "rule 4.7.1: another number of core rows": changed(27, 3),
        "rule 4.7.1: other rows": changed(31, 2),
        "rule 4.7.1: other columns": changed(35, 3),
        "rule 4.7.1: other rows of the last tensor": changed(41, 3),
        "rule 4.7.1: another order of tensors": encoded(_TWO[::-1]),
        "rule 4.7.2: an exponent of U above": changed(36, DENSE_EXP_MAX + 1),
        "rule 4.7.2: an exponent of U below": changed(36, -DENSE_EXP_MAX - 1),
        "rule 4.7.2: an exponent of V above, of the last tensor": changed(47, DENSE_EXP_MAX + 1),
        "rule 4.7.2: an exponent of V below, of the last tensor": changed(47, -DENSE_EXP_MAX - 1),
        "rule 4.7.2: an exponent of -128": changed(37, -128),
        "rule 4.7.2: an entry above": changed(48, 9),
        "rule 4.7.2: an entry below": changed(len(data) - 1, -9),
    }


def _file(name: str, manifest: Manifest, data: bytes, *, is_good: bool) -> Case:
    def members() -> dict[str, Any]:
        content = decode_basis_untrusted(manifest, data)
        assert encode_basis(manifest.method.rank, content) == data
        return {"bases": [_plain(each) for each in content.bases]}

    found = judged(members)
    assert found["reason"] == (None if is_good else "BASIS"), (name, found)
    fields = ("rank", "basis_sha256", "basis_max", "start_rank", "core_rows")
    chosen = {"core": "dense"} | {field: getattr(manifest.method, field) for field in fields}
    tensors = [{"kind": each.kind.value, "rows": each.rows, "cols": each.cols} for each in manifest.tensors]
    given = {"method": chosen, "tensors": tensors, "data": data.hex()}
    return case(f"dense basis file: {name}", "basis_file", given, found)


def _plain(basis: Basis) -> dict[str, Any]:
    assert basis.v is not None
    return {"u": basis.u.tolist(), "v": basis.v.tolist(), "u_exp": basis.u_exp, "v_exp": basis.v_exp}


# --- quotients and the view


_FILE = encoded(_TWO)
VIEWED = manifest_of(_TWO, _FILE, 8)
_HEAVY = dense_run({"noise_rows": 1}, schedule=constant(1 << 16), authors_max=1 << 16)
QUOTIENT_RUNS = {"dense": VIEWED, "dense, one row of noise": _HEAVY}


def dense_quotients() -> Iterator[Case]:
    """Cases of the function ``dense_core``: w S / (R + N), halves away from zero."""
    # N = 3. Weights of steps 0 to 5: 5, 4, 3, 2, 1, 0.
    chosen: dict[str, tuple[str, int, list[int]]] = {
        "halves, of both signs": ("dense", 4, [5, 4, -4, 12, -12, 20, -20, 3, -3]),
        "just below and above halves": ("dense", 4, [11, 6, -6, 8, -8, 20, -20, 22, -22]),
        "an odd divisor": ("dense", 0, [4, 1, -1, 2, -2, 3, -3, 508, -508]),
        "a weight of two": ("dense", 3, [1, 1, -1, 2, -2, 3, -3, 127, -127]),
        "the last step, whose weight is zero": ("dense", 5, [8, 1_016, -1_016, 1, 2, 3, 4, 5, 6]),
        "rows alone": ("dense", 2, [9, *[0] * 8]),
        "no message": ("dense", 2, [0] * 9),
        "the largest": ("dense, one row of noise", 1, [_rows_max(), *[127 * _rows_max(), -127 * _rows_max()] * 4]),
        "the largest of one message": ("dense, one row of noise", 1, [1, *[127, -127, 1, -1] * 2]),
    }
    for name, (run, step, sums) in chosen.items():
        core = dense_core(QUOTIENT_RUNS[run], step, np.array(sums, dtype=np.int64)).tolist()
        given = {"manifest": run, "step": step, "sums": [str(each) for each in sums]}
        yield case(f"dense core: {name}", "dense_core", given, {"core": [str(each) for each in core]})


def _rows_max() -> int:
    return _HEAVY.authors_max * _HEAVY.method.directions


def dense_views() -> Iterator[Case]:
    """Cases of the function ``view``."""
    one, two = [4, 12, -12, 28, -4, 1, 0, -1, 508], [8, -99, 5, 7, -7, 1_016, 44, -6, 0]
    later = encoded(_LATER)
    yield _view("no coefficients", {})
    yield _view("one step", {1: one})
    yield _view("a step of rows alone moves nothing", {0: [9, *[0] * 8], 1: one})
    yield _view("the last step has no weight", {5: two})
    yield _view("each step has a quotient of its own", {0: one, 1: two, 3: one, 5: one})
    yield _view("another basis from step 2 on, of other exponents", {1: one, 2: two, 3: one}, {2: later})


def _view(name: str, sums: Mapping[int, list[int]], renewals: Mapping[int, bytes] | None = None) -> Case:
    files = {0: _FILE, **(renewals or {})}
    hashes = {epoch: hashlib.sha256(data).hexdigest() for epoch, data in files.items()}
    contents = {epoch: decode_basis_untrusted(VIEWED, data, hashes[epoch]) for epoch, data in files.items()}
    later = {
        epoch: Published(sha256=hashes[epoch], bases=content.bases) for epoch, content in contents.items() if epoch
    }
    plain = {
        each.name: 5.0 * (1 + torch.arange(each.rows * each.cols, dtype=torch.float64).view(each.rows, each.cols))
        for each in VIEWED.tensors
    }
    cores = {step: dense_core(VIEWED, step, np.array(each, dtype=np.int64)) for step, each in sums.items()}
    folded = fold_weights(Bases(VIEWED, contents[0], later), cores, plain)
    tensors = []
    for index, each in enumerate(VIEWED.tensors):
        exponent = VIEWED.method.alpha_exp + min(content.bases[index].exp for content in contents.values())
        entries = folded.get(each.name, plain[each.name]) * 2.0**-exponent
        assert bool((entries == entries.round()).all())
        tensors.append({"scale_exp": exponent, "entries": entries.to(torch.int64).tolist()})
    given = {
        "manifest": "dense",
        "base": [each.to(torch.int64).tolist() for each in plain.values()],
        "epochs": [[step, [str(value) for value in each]] for step, each in sums.items()],
        "at": None,
        "basis": _FILE.hex(),
        "renewals": [[epoch, data.hex()] for epoch, data in files.items() if epoch],
    }
    return case(f"dense: {name}", "view", given, {"tensors": tensors})


# --- the numbers of a message


def dense_quantised() -> Iterator[Case]:
    """Cases of the function ``quantise_dense``: unit 2^-4, and 400 as the largest energy unless another is given."""
    unit = 2.0**-4
    chosen: dict[str, tuple[int, list[float]]] = {
        "halves": (400, [0.5 * unit, -0.5 * unit, 1.5 * unit, -2.5 * unit, 0.49999999999999994 * unit, -0.0]),
        "example of SPEC 5.6": (400, [1.0, -0.25]),
        "of the longest length": (400, [18.0 * unit, 0.0, 0.0, -math.sqrt(0.5) * unit]),
        "shortened, with its direction": (400, [3.0, -4.0, 1.0, 0.125]),
        "shortened before it is rounded": (400, [1.875, 0.04375]),
        "clipped": (30_000, [9.0, -1.0]),
        "shortened, then clipped": (20_000, [1e6, -3.0, 2.0]),
        "an energy that no number keeps": (1, [1.0, -1.0, 1.0, 1.0]),
        "zeros with such an energy": (1, [0.0] * 5),
        "squares that overflow": (400, [1e200, -1e200, 3e199]),
        "squares that underflow": (400, [1e-200, -1e-200]),
        "infinite: skipped": (400, [1.0, math.inf]),
        "not a number: skipped": (400, [math.nan, 1.0]),
    }
    for name, (energy_max, mean) in chosen.items():
        method = replace(DENSE.method, quantum_exp=-4, energy_max=energy_max)
        try:
            found: list[int] | None = list(quantise_dense(method, 3, np.array(mean)))
        except NumericError:
            found = None
        if found is not None:
            assert sum(number * number for number in found[1:]) <= energy_max
            _check_clear_of_halves(mean, energy_max)
        given: dict[str, Any] = {"quantum_exp": -4, "energy_max": energy_max, "clip": 127, "rows": 3}
        given |= {"mean": [float_text(each) for each in mean], "shown": [repr(each) for each in mean]}
        yield case(f"dense: {name}", "quantise_dense", given, {"scalars": found})


def _check_clear_of_halves(mean: Sequence[float], energy_max: int) -> None:
    """What is shortened is not near a half: nodes may sum in another order."""
    scaled = [16.0 * each for each in mean]
    length, most = math.hypot(*scaled), max(0.0, math.sqrt(energy_max) - math.sqrt(len(mean)) / 2)
    if length > most:
        assert all(abs(abs(each) * most / length % 1 - 0.5) > 1e-6 for each in scaled)
