"""Manifests of runs with dense cores (SPEC 1.4.14, 4.7): changes to the small one, and whether it is valid then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from protocol.limits import ENERGY_MAX, NOISE_ROWS_MAX

Data: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[str, Data, bool]

DENSE: Data = {
    "method.core": "dense",
    "method.core_rows": 1,
    "method.noise_rows": 128,
    "method.energy_max": 1_000,
    "method.basis_sha256": "0123456789abcdef" * 4,
    "method.epoch_steps": 1,
    "method.epsilon_exp": 0,
    "method.sides": 1,
    "method.directions": 16,
    "method.clip": 127,
}
# path, least and largest value, as in NUMBERS of the other fields
DENSE_NUMBERS: tuple[tuple[str, int, int, Data], ...] = (
    ("method.noise_rows", 1, NOISE_ROWS_MAX, DENSE),
    ("method.energy_max", 1, ENERGY_MAX, DENSE),
)


def of_rows(core_rows: int, **changes: Any) -> Data:
    """A dense core of so many rows."""
    return DENSE | {"method.core_rows": core_rows} | changes


def dense_rows(tensor: Data) -> Iterator[Row]:
    """All of them. ``tensor``: of the small manifest."""
    yield "valid: a dense core", DENSE, True
    yield "valid: a dense core of two rows, whatever the label words", of_rows(2), True
    choices = {"task.kind": "choice", "task.label_words": [], "task.completion": " {choice}"}
    yield "valid: a dense core with choices", of_rows(16, **choices), True
    completion = {"task.kind": "completion", "task.label_words": [], "task.completion": "{text}"}
    yield "valid: a dense core with a completion", of_rows(16, **completion), True
    yield "valid: a dense core of a transposed tensor", {**DENSE, "tensors.0.kind": "transposed"}, True
    turned = {**tensor, "name": "b", "kind": "transposed", "rows": 5, "cols": tensor["rows"]}
    yield "valid: a dense core of a matrix and a transposed tensor", {**DENSE, "tensors": [tensor, turned]}, True
    yield "valid: a dense core with numbers of 4 bits", {**DENSE, "method.clip": 7}, True
    yield "valid: a dense core with numbers of 2 bits", {**DENSE, "method.clip": 1}, True
    for core_rows in (1, 128):
        yield f"method.core_rows = {core_rows}", of_rows(core_rows), True
    yield "method.core_rows = 129", of_rows(129), False
    yield "method.core_rows = -1", {"method.core_rows": -1}, False
    yield "method.core_rows: a boolean", {**DENSE, "method.core_rows": True}, False
    for name, changes in _broken(tensor):
        yield f"rule 1.4.14: {name}", changes, False
    yield from _bounds(tensor)


def _broken(tensor: Data) -> Iterator[tuple[str, Data]]:
    for field in ("core_rows", "noise_rows", "energy_max"):
        yield f"{field} without a dense core", {f"method.{field}": 1}
        yield f"a dense core without {field}", {**DENSE, f"method.{field}": 0}
    yield "a transposed tensor without a dense core", {"tensors.0.kind": "transposed"}
    turned = {**tensor, "name": "b", "kind": "transposed"}
    broken: dict[str, Data] = {
        "normalised scalars": {"method.scalar": "normalised"},
        "an epsilon": {"method.epsilon_exp": -1},
        "two sides": {"method.sides": 2},
        "directions that share rows": {"method.shares": 2},
        "rounds of two steps": {"method.local_steps": 2, "method.epoch_steps": 2},
        "epochs of two steps": {"method.epoch_steps": 2},
        **{f"clip {clip}": {"method.clip": clip} for clip in (2, 3, 6, 8, 15, 63)},
        "clip 126": {"method.clip": 126},
        "clip 128": {"method.clip": 128},
        "a vector": {"tensors": [tensor, {"name": "b", "kind": "vector", "rows": tensor["rows"], "cols": 0}]},
        "more rows a step than a message": {"task.batch_rows": 32},
        "matrices of other rows": {"tensors": [tensor, {**tensor, "name": "b", "rows": 25}]},
        "a transposed tensor of as many rows": {"tensors": [tensor, turned]},
        "transposed tensors of other columns": {
            "tensors": [{**turned, "name": "a"}, {**turned, "cols": tensor["cols"] + 1}]
        },
        "accuracy": {"task.objective": "accuracy"},
        "f1": {"task.objective": "f1"},
    }
    for name, changes in broken.items():
        yield f"a dense core with {name}", {**DENSE, **changes}


def _bounds(tensor: Data) -> Iterator[Row]:
    """What a dense core makes of 1.4.7, 1.4.10, 1.4.11 and 1.4.14, at their limits."""
    for core_rows, tensors in ((127, 129), (128, 128)):  # with the rows: 2^14 numbers, and one more
        many = [{**tensor, "name": str(number)} for number in range(tensors)]
        wide = of_rows(core_rows, **{"method.rank": 1, "method.directions": 4, "task.batch_rows": 4})
        name = f"rule 1.4.14: 1 + {core_rows} x {tensors} numbers"
        yield name, {**wide, "tensors": many}, core_rows == 127
    rows = 1 << 23
    cols = (1 << 28) - 19 - 2 * 15 * rows  # 19 + 2 x 15 x rows + cols: 2^28, and one more
    for more in (0, 1):
        row = of_rows(15, **{"method.rank": 1, "tensors.0.rows": rows, "tensors.0.cols": cols + more})
        yield f"rule 1.4.7: a file of 2^28 + {more} bytes", row, more == 0
    turned = {"tensors.0.kind": "transposed", "tensors.0.rows": cols, "tensors.0.cols": rows}
    yield "rule 1.4.7: a file of 2^28 bytes, transposed", of_rows(15, **{"method.rank": 1}, **turned), True
    yield "rule 1.4.7: no file, no bound", {"tensors.0.rows": 1 << 24, "method.rank": 64}, True
    for core_rows in (63, 64):  # 2^20 x (1 + core_rows)
        row = of_rows(core_rows, **{"method.rank": 1, "steps": 1 << 20, "schedule.weight_start": 1})
        yield f"rule 1.4.10: 2^20 x (1 + {core_rows})", row, core_rows == 63
    for steps in (67_096, 67_097):  # 2^16 x steps x 127^3: 2^53 / (2^16 x 127^3) = 67096.4...
        row = {**DENSE, "method.rank": 1, "schedule.weight_end": 1 << 16, "steps": steps}
        yield f"rule 1.4.11: dense, {steps} x 2^16 x 127 x 127^2", row, steps == 67_096
    for clip, core_rows, most in ((7, 32, 38_041), (1, 128, 66_572)):  # 2^16 x steps x clip x core_rows x 127^2
        for steps in (most, most + 1):
            row = of_rows(core_rows, **{"method.rank": 1, "method.clip": clip, "schedule.weight_end": 1 << 16})
            name = f"rule 1.4.11: dense, {steps} x 2^16 x {clip} x {core_rows} x 127^2"
            yield name, {**row, "steps": steps}, steps == most
    for rank in (16, 32):  # core_rows x rank, not rank^2: 2^12 x 2^16 x 127 x 4 x rank x 127^2
        row = of_rows(4, **{"method.rank": rank, "schedule.weight_start": 1 << 16})
        yield f"rule 1.4.11: dense, 4 x {rank}", {**row, "steps": 1 << 10}, rank == 16
