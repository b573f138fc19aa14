"""From what an owner types to a manifest: defaults, a TOML file for people, learning rates as integers. No torch."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.crypto.hashing import round_half_away
from protocol.errors import OperatorError, Reject
from protocol.limits import COEFFICIENT_BITS_MAX, NORMALISED_CLIP, NORMALISED_MASS
from protocol.run.manifest import FORMAT, Manifest, ModelSpec, TensorSpec, checked
from protocol.run.method import BasisKind
from protocol.run.task import TaskSpec
from protocol.schema import to_plain
from protocol.subspace.quantise import NORMALISED_UNIT
from sfnode.storage.files import read_bytes

_AUTHORS_MAX = 1_024
_WEIGHT_BITS_MAX = 10  # the first weight lies in 512 ... 1,023: the learning rate is met to 0.1 %
_WEIGHT_BITS_MIN = 4  # 8 ... 15: to 6 %, and a schedule goes down in as many stairs
# Raw projected gradients in steps of 1/32, bounded by 32: on SST-2 with a 4 M parameter OPT their median is 4 and 6 %
# exceed 16. With 1,024 authors, 8 directions and 1,024 steps an epoch this just keeps U C V^T exact (SPEC 4.5).
_RAW_QUANTUM_EXP = -5
_RAW_CLIP = 1_024
_LEARNING_RATE_MIN, _LEARNING_RATE_MAX = 1e-9, 1.0  # beyond it nothing is learnt, or everything is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice:
    """How a run trains, in the terms of the field; the manifest holds the integers that follow.

    Attributes:
        rank, core, scalar, directions, local_steps, epoch_steps: as in the manifest.
        learning_rate: length of a step. Raw: the weights move by lr x mean over directions of g z. Normalised: by
            lr x mean of (g / rms g) z, so that it is a length and not a rate.
        schedule: "linear" to zero, or "constant".
        epsilon_exp: epsilon = 2^epsilon_exp.
        basis_sha256, basis_unit_exp, basis_max: of a published basis, as in the manifest; without a hash it is random.
        sides, shares: as in the manifest.
    """

    rank: int = 32
    core: str = "canonical"
    scalar: str = "raw"
    directions: int = 8
    local_steps: int = 1
    epoch_steps: int = 1_024
    learning_rate: float = 3e-4
    schedule: str = "linear"
    epsilon_exp: int = -10
    basis_sha256: str = ""
    basis_unit_exp: int = 0
    basis_max: int = 1
    sides: int = 2
    shares: int = 1


def method_plain(choice: MethodChoice) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest's ``method`` and ``schedule`` as plain data."""
    is_raw = choice.scalar == "raw"
    rate = choice.learning_rate
    if not (_LEARNING_RATE_MIN <= rate <= _LEARNING_RATE_MAX):
        allowed = f"{_LEARNING_RATE_MIN:g} ... {_LEARNING_RATE_MAX:g}"
        raise OperatorError(f"--learning-rate {rate:g}: must be a number of {allowed}, such as 0.001")
    # The view moves by alpha w q z per direction, and q is g / 2^quantum_exp or 32 g / rms: solve for alpha w.
    per_unit = 2.0**_RAW_QUANTUM_EXP if is_raw else 1.0 / NORMALISED_UNIT
    wanted = rate * per_unit / choice.directions
    alpha_exp = math.frexp(wanted)[1] - _weight_bits(choice)
    weight = round_half_away(math.ldexp(wanted, -alpha_exp))
    method = {
        "rank": choice.rank,
        "epoch_steps": choice.epoch_steps,
        "basis": BasisKind.PUBLISHED.value if choice.basis_sha256 else BasisKind.RANDOM.value,
        "basis_sha256": choice.basis_sha256,
        "basis_unit_exp": choice.basis_unit_exp,
        "basis_max": choice.basis_max,
        "sides": choice.sides,
        "shares": choice.shares,
        "core": choice.core,
        "scalar": choice.scalar,
        "epsilon_exp": choice.epsilon_exp,
        "directions": choice.directions,
        "local_steps": choice.local_steps,
        "alpha_exp": alpha_exp,
        "quantum_exp": _RAW_QUANTUM_EXP if is_raw else 0,
        "clip": _RAW_CLIP if is_raw else NORMALISED_CLIP,
    }
    weight_end = weight if choice.schedule == "constant" else 0
    return method, {"kind": choice.schedule, "weight_start": weight, "weight_end": weight_end}


def _weight_bits(choice: MethodChoice) -> int:
    """How large the weights may be with U C V^T exact (SPEC 4.5) for so many authors: large ones meet a rate better."""
    mass = choice.directions * (_RAW_CLIP if choice.scalar == "raw" else NORMALISED_MASS)
    others = _AUTHORS_MAX * choice.epoch_steps * mass * (choice.rank * choice.basis_max) ** 2
    return max(_WEIGHT_BITS_MIN, min(_WEIGHT_BITS_MAX, COEFFICIENT_BITS_MAX - (others - 1).bit_length()))


def build_manifest(
    *,
    name: str,
    owner: bytes,
    model: ModelSpec,
    tensors: tuple[TensorSpec, ...],
    task: TaskSpec,
    settings: Mapping[str, Any],
) -> Manifest:
    """A checked manifest. ``settings``: plain top-level fields, which replace or complete the ones given here."""
    plain: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "owner": owner.hex(),
        "model": to_plain(model, as_rows=False),
        "tensors": to_plain(tensors, as_rows=False),
        "task": to_plain(task, as_rows=False),
        "staleness": 1,
        "admission": {"kind": "open", "pow_bits": 0},
        "authors_max": _AUTHORS_MAX,
    }
    try:
        return checked(_merged(plain, settings))
    except Reject as reject:
        raise OperatorError(f"the manifest would not be valid: {reject.detail}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file; OperatorError names the line that is wrong."""
    try:
        text = read_bytes(path, "the settings file").decode("utf-8")
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.rstrip().count(chr(10)) + 1}, the end of the file"
        raise OperatorError(f"{path}: not valid TOML: {str(error).replace('at end of document', end)}") from None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the entries of ``over``; tables are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        held = result.get(key)
        result[key] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result
