"""Vectors of dense cores: the state in the view (SPEC 4.7), and the numbers of a message (SPEC 5.6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from protocol.errors import NumericError
from protocol.state.coefficients import dense_core, view_exp
from protocol.subspace.basis_file import Bases, decode_basis_untrusted
from protocol.subspace.quantisation import quantise_dense
from sfnode.training.model.folding import fold_weights
from tests.vectors.basis_file_cases import TWO
from tests.vectors.notation import Case, case, float_text
from tests.vectors.runs import DENSE, constant, dense_run

# --- quotients and the view


FILE = TWO.encoded()
VIEWED = TWO.manifest(FILE)
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
    yield _view("no coefficients", {})
    yield _view("one step", {1: one})
    yield _view("a step of rows alone moves nothing", {0: [9, *[0] * 8], 1: one})
    yield _view("the last step has no weight", {5: two})
    yield _view("each step has a quotient of its own", {0: one, 1: two, 3: one, 5: one})


def _view(name: str, sums: Mapping[int, list[int]]) -> Case:
    plain = {
        each.name: 5.0 * (1 + torch.arange(each.rows * each.cols, dtype=torch.float64).view(each.rows, each.cols))
        for each in VIEWED.tensors
    }
    bases = Bases(VIEWED, decode_basis_untrusted(VIEWED, FILE))
    cores = {step: dense_core(VIEWED, step, np.array(each, dtype=np.int64)) for step, each in sums.items()}
    folded = fold_weights(bases, cores, plain)
    tensors = []
    for index, each in enumerate(VIEWED.tensors):
        exponent = view_exp(VIEWED, index) + bases.of(0, index).exp
        entries = folded.get(each.name, plain[each.name]) * 2.0**-exponent
        assert bool((entries == entries.round()).all())
        tensors.append({"scale_exp": exponent, "entries": entries.to(torch.int64).tolist()})
    given = {
        "manifest": "dense",
        "base": [each.to(torch.int64).tolist() for each in plain.values()],
        "epochs": [[step, [str(value) for value in each]] for step, each in sums.items()],
        "basis": FILE.hex(),
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
        "shortened, though no longer than the root of the energy": (400, [19.6 * unit, 0.0, 0.0, 0.0]),
        "too many numbers for the energy: nothing is left": (1, [1.0] + [0.0] * 15),
        "clipped": (30_000, [9.0, -1.0]),
        "shortened, then clipped": (20_000, [1e6, -3.0, 2.0]),
        "an energy that no number keeps": (1, [1.0, -1.0, 1.0, 1.0]),
        "zeros with such an energy": (1, [0.0] * 5),
        "squares that overflow": (400, [1e200, -1e200, 3e199]),
        "squares that underflow": (400, [1e-200, -1e-200]),
        "infinite: skipped": (400, [1.0, math.inf]),
        "not a number: skipped": (400, [math.nan, 1.0]),
    }
    of_few_bits = {
        "of 4 bits, halves and its ends": (7, [0.5 * unit, -0.5 * unit, 6.5 * unit, 7.5 * unit, -7.5 * unit, -9.0]),
        "of 4 bits, shortened": (7, [3.0, -4.0, 1.0, 0.125]),
        "of 2 bits, halves and its ends": (1, [0.5 * unit, -0.5 * unit, 0.4999 * unit, -1.5 * unit, 3 * unit, -0.25]),
        "of 2 bits, shortened": (1, [3.0, -4.0, 1.0, 0.125]),
    }
    rows = [(name, 127, energy_max, mean) for name, (energy_max, mean) in chosen.items()]
    rows += [(name, clip, 400, mean) for name, (clip, mean) in of_few_bits.items()]
    for name, clip, energy_max, mean in rows:
        method = replace(DENSE.method, quantum_exp=-4, energy_max=energy_max, clip=clip)
        try:
            found: list[int] | None = list(quantise_dense(method, 3, np.array(mean)))
        except NumericError:
            found = None
        if found is not None:
            assert sum(number * number for number in found[1:]) <= energy_max
            _check_clear_of_halves(mean, energy_max)
        given: dict[str, Any] = {"quantum_exp": -4, "energy_max": energy_max, "clip": clip, "rows": 3}
        given |= {"mean": [float_text(each) for each in mean], "shown": [repr(each) for each in mean]}
        yield case(f"dense: {name}", "quantise_dense", given, {"scalars": found})


def _check_clear_of_halves(mean: Sequence[float], energy_max: int) -> None:
    """What is shortened is not near a half: nodes may sum in another order."""
    scaled = [16.0 * each for each in mean]
    length, most = math.hypot(*scaled), max(0.0, math.sqrt(energy_max) - math.sqrt(len(mean)) / 2)
    if length > most:
        assert all(abs(abs(each) * most / length % 1 - 0.5) > 1e-6 for each in scaled)
