"""Vectors of rounding, quantisation, the energy rule, the schedule and example sampling (SPEC 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from protocol.crypto.hashing import round_half_away
from protocol.crypto.keys import Signer
from protocol.errors import NumericError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest, checked
from protocol.run.method import Method, ScalarKind
from protocol.subspace.drawn_examples import example_indices
from protocol.subspace.quantisation import quantise
from tests.support.manifests import manifest_data, small_manifest
from tests.vectors.dense_cases import dense_quantised
from tests.vectors.notation import Case, Document, case, document, float_text, judged, key_text
from tests.vectors.runs import DENSE
from tests.vectors.subspace_cases import SEED

_BELOW_HALF = 0.49999999999999994


def scalars() -> Document:
    """scalars.json"""
    cases = [*_rounding(), *_raw(), *_normalised(), *_energies(), *_measured(), *_weights(), *_examples()]
    cases += [*dense_quantised(), _dense_rows()]
    return document("Rounding, scalars, learning-rate weights and examples: SPEC 5", cases)


def _rounding() -> list[Case]:
    values = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.25, -0.75, _BELOW_HALF, -_BELOW_HALF, 5e-324]
    values += [4503599627370495.5, -4503599627370495.5, 4503599627370496.0, 9007199254740991.0, -123456.499999]
    return [
        case(
            f"round: {value!r}",
            "round_half_away",
            {"value": float_text(value), "shown": repr(value)},
            {"integer": str(round_half_away(value))},
        )
        for value in values
    ]


def _quantised(name: str, method: Method, gradients: Sequence[float]) -> Case:
    method = replace(method, directions=max(method.directions, len(gradients)))
    given = {
        "scalar": method.scalar.value,
        "quantum_exp": method.quantum_exp,
        "clip": method.clip,
        "directions": method.directions,
        "projected_gradients": [float_text(g) for g in gradients],
        "shown": [repr(g) for g in gradients],
    }
    try:
        found = list(quantise(method, gradients))
    except NumericError:
        return case(name, "quantise", given, {"scalars": None})
    if method.scalar is ScalarKind.NORMALISED:
        _check_clear_of_boundaries(gradients)
    return case(name, "quantise", given, {"scalars": found})


def _check_clear_of_boundaries(gradients: Sequence[float]) -> None:
    """No exact value 32 g / rms lies near a half, so that a sum in another order is rounded the same way."""
    mean_square = sum(Fraction(g) ** 2 for g in gradients) / len(gradients)
    for g in gradients:
        square = 1024 * Fraction(g) ** 2 / mean_square
        magnitude = math.isqrt(int(square * 10**16)) / 10**8
        assert abs(magnitude % 1 - 0.5) > 1e-6, gradients


def _raw() -> list[Case]:
    def method(**changes: object) -> Method:
        return small_manifest(**changes).method

    small, rounding = method(), [0.5, -(2.0**-9), 0.0019, 2.0**-9, 3 * 2.0**-9, -5 * 2.0**-9, 0.0, -0.0]
    chosen = {
        "raw: examples of SPEC 5.2 and halves": (small, rounding),
        "raw: at the clip": (small, [99.0, -99.0, 1000 / 256, 1000.49 / 256, 999.5 / 256, -1000.5 / 256, 1e300]),
        "raw: clip 1": (method(clip=1), [2.0**-8, -(2.0**-8), 2.0**-9, 0.0019, 7.0]),
        "raw: largest clip": (method(clip=32_767), [127.99609375, 128.0, -128.0, -127.994140625]),
        "raw: quantum 2^10": (method(quantum_exp=10), [511.999, 512.0, -512.0, 1536.0, -2560.0]),
        "raw: quantum 2^-40": (method(quantum_exp=-40), [2.0**-40, 2.0**-41, -(2.0**-42), 1e-9]),
        "raw: infinite": (small, [1.0, math.inf]),
        "raw: negative infinite": (small, [-math.inf]),
        "raw: not a number": (small, [math.nan, 1.0]),
        "raw: all zero is sent": (small, [0.0, -0.0]),
        "raw: two of four measured": (method(directions=4), [0.5, -0.25]),
    }
    return [_quantised(name, *row) for name, row in chosen.items()]


def _normalised() -> list[Case]:
    method = small_manifest(scalar="normalised", clip=127, directions=2).method
    chosen = {
        "example of SPEC 5.2": [0.5, -1.0, 2.0, 0.25],
        "two equal": [3.0, 3.0],
        "two opposite": [-1e-3, 1e-3],
        "one of two is zero": [0.0, 4.0],
        "one of sixteen carries all: clipped": [0.0] * 15 + [1.0],
        "one of sixteen carries all, negative": [0.0] * 7 + [-1.0] + [0.0] * 8,
        "one of fifteen carries all: not clipped": [0.0] * 14 + [1.0],
        "squares that overflow": [1e300, -2e300, 5e299],
        "squares that underflow": [3e-300, 1e-300, -2e-300],
        "all zero: skipped": [0.0, -0.0],
        "infinite: skipped": [1.0, math.inf],
        "not a number: skipped": [math.nan, 1.0],
    }
    partial = {
        "example of SPEC 5.2, two of four measured": [0.5, -1.0],
        "one of four measured": [-1e-9],
        "three of four measured, one of them zero": [2.0, 0.0, 1.0],
        "two of four measured, all zero: skipped": [0.0, -0.0],
        "three of four measured, one not a number: skipped": [1.0, math.nan, 1.0],
    }
    of_four = replace(method, directions=4)
    return [
        *(_quantised(f"normalised: {name}", method, gradients) for name, gradients in chosen.items()),
        *(_quantised(f"normalised: {name}", of_four, gradients) for name, gradients in partial.items()),
    ]


def _measured() -> list[Case]:
    """How many directions an author measured, as far as its message tells."""
    chosen = {
        "all": (4, 1, [32, -32, 32, -32]),
        "two of four": (4, 1, [32, -32, 0, 0]),
        "the second is zero": (4, 1, [55, 0, 0, 0]),
        "the last of four alone": (4, 1, [0, 0, 0, 1]),
        "all zero": (4, 1, [0, 0, 0, 0]),
        "whole blocks": (8, 4, [32, 0, 0, 0, 0, 0, 0, 0]),
        "one into the second block": (8, 4, [32, 0, 0, 0, -1, 0, 0, 0]),
        "the longest of three local steps": (3, 1, [32, 0, 0, 32, 1, 0, 32, 0, 0]),
        "a local step of zeros": (2, 1, [0, 0, 5, 0]),
    }
    return [
        case(
            f"measured: {name}",
            "measured",
            {"directions": directions, "shares": shares, "scalars": row},
            {"directions": _method(directions, shares).directions_measured(row)},
        )
        for name, (directions, shares, row) in chosen.items()
    ]


def _dense_rows() -> Case:
    row = [3, 0, 0, 0, 5, 0, 0, 0, 0]
    given = {"core": "dense", "directions": 4, "shares": 1, "scalars": row}
    return case(
        "measured: rows of a dense message", "measured", given, {"directions": DENSE.method.directions_measured(row)}
    )


def _method(directions: int, shares: int) -> Method:
    data = manifest_data(directions=directions, shares=shares)
    data["task"]["batch_rows"] = directions
    return checked(data).method


def _energies() -> list[Case]:
    chosen = {
        "D = 2: E = 1985, the least": [44, 7],
        "D = 2: E = 1972, below": [44, -6],
        "D = 2: E = 2106, within": [-45, 9],
        "D = 2: E = 2113, just above": [32, 33],
        "D = 4: example of SPEC 5.2": [14, -28, 56, 7],
        "D = 4: 4 E = 3969 D exactly": [60, 18, 6, 3],
        "D = 4: 4 E = 3969 D - 4": [48, 32, 24, 8],
        "D = 4: 4 E = 4225 D exactly": [65, 0, 0, 0],
        "D = 4: 4 E = 4225 D + 4": [65, 1, 0, 0],
        "all zero": [0, 0],
        "all zero, D = 256": [0] * 256,
        "D = 4: two measured": [32, -32, 0, 0],
        "D = 4: two measured, E = 1985, the least": [44, 7, 0, 0],
        "D = 4: two measured, E = 1972, below": [44, -6, 0, 0],
        "D = 4: one measured": [0, 0, 32, 0],
        "D = 4: one measured, too little": [0, -31, 0, 0],
        "D = 4: two that are not zero and weigh as four": [45, -45, 0, 0],
        "D = 4: two that are not zero and weigh more than four": [46, -46, 0, 0],
        "D = 17: low, but 127 excuses": [127] + [1] * 16,
        "D = 17: low, but -127 excuses": [1] * 16 + [-127],
        "D = 17: low, and 126 does not excuse": [126] + [1] * 16,
        "D = 17: 126 alone is more than one": [126] + [0] * 16,
        "D = 15: 127 alone is too much, and no excuse for it": [127] + [0] * 14,
        "D = 16: 127 alone is within": [0] * 15 + [127],
        "D = 256: 127 alone": [127] + [0] * 255,
        "D = 256: all 32": [32] * 256,
        "D = 256: all 31": [31] * 256,
        "D = 256: all 33": [-33] * 256,
    }
    return [
        case(f"energy: {name}", "energy", {"scalars": row}, {"is_allowed": _has_allowed_energy(row)})
        for name, row in chosen.items()
    ]


def _has_allowed_energy(row: list[int]) -> bool:
    data = manifest_data(scalar="normalised", clip=127, directions=len(row))
    data["task"]["batch_rows"] = len(row)
    codec = EnvelopeCodec(checked(data))
    record = codec.seal(Signer(bytes(32)), 0, tuple(row)).record
    found = judged(lambda: {"scalars": codec.decode_untrusted(record).scalars})
    assert found["reason"] in (None, "SCALAR_ENERGY")
    return bool(found["verdict"] == "ACCEPT")


def _schedule(kind: str, start: int, end: int, steps: int) -> Manifest:
    data = manifest_data(epoch_steps=1 << 20, clip=1, rank=1) | {"steps": steps, "authors_max": 1}
    return checked(data | {"schedule": {"kind": kind, "weight_start": start, "weight_end": end}})


def _weights() -> list[Case]:
    chosen = [
        ("linear", 500, 100, 40, (0, 1, 2, 7, 20, 38, 39)),
        ("linear", 1, 0, 2, (0, 1)),
        ("linear", 1, 0, 3, (0, 1, 2)),  # one half rounds up
        ("linear", 3, 8, 11, (0, 1, 3, 5, 9, 10)),
        ("linear", 65_536, 0, 1_048_576, (0, 7, 8, 524_287, 524_288, 1_048_567, 1_048_568, 1_048_575)),
        ("linear", 1, 65_536, 1_048_576, (0, 8, 1_048_575)),
        ("linear", 77, 5, 1, (0,)),
        ("constant", 77, 5, 40, (0, 20, 39)),
    ]
    return [
        case(
            f"weight: {kind} {start} to {end}, step {step} of {steps}",
            "weight",
            {"kind": kind, "weight_start": start, "weight_end": end, "steps": steps, "step": step},
            {"weight": _schedule(kind, start, end, steps).weight(step)},
        )
        for kind, start, end, steps, picked in chosen
        for step in picked
    ]


def _examples() -> list[Case]:
    chosen = [(SEED, 4, 0, 1_000), (SEED, 4, 1, 1_000), (SEED, 3, 2, 7), (SEED, 16, 0, 1), (SEED, 5, 63, 2**31)]
    chosen += [(0, 6, 0, 67_349), ((1 << 64) - 1, 6, 0, 2**32 - 1)]
    return [
        case(
            f"examples: seed {key_text(seed)}, B = {rows}, local step {local_step}, N = {dataset_rows}",
            "examples",
            {
                "seed": key_text(seed),
                "batch_rows": rows,
                "local_step": local_step,
                "dataset_rows": dataset_rows,
            },
            {"rows": example_indices(_batch(rows), seed, local_step, dataset_rows).tolist()},
        )
        for seed, rows, local_step, dataset_rows in chosen
    ]


def _batch(rows: int) -> Manifest:
    data = manifest_data()
    data["task"]["batch_rows"] = rows
    return checked(data)
