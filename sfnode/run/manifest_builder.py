"""From an owner's choices to a manifest: defaults, TOML files, and learning rates as integers. No torch."""

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, cast

from protocol.crypto import hashing
from protocol.errors import OperatorError, Reject
from protocol.limits import COEFFICIENT_BITS_MAX, NORMALISED_CLIP
from protocol.run import CoreKind, Manifest, Method, ScalarKind, Schedule, ScheduleKind, checked
from protocol.schema import to_plain
from protocol.subspace import NORMALISED_UNIT
from sfnode.run.option_field import given
from sfnode.storage import DenseSettings, disk

AUTHORS_MAX = 1_024
STALENESS = 1  # rounds: nobody idles while the others' last updates are on their way
_WEIGHT_BITS_MAX = 10  # the first weight lies in 512 ... 1,023: the learning rate is met to 0.1 %
_WEIGHT_BITS_MIN = 4  # 8 ... 15: to 6 %, and a schedule goes down in as many levels
# Raw projected gradients in steps of 1/32, bounded by 32: on SST-2 with a 4 M parameter OPT their median is 4 and 6 %
# exceed 16. With 1,024 authors, 8 directions and 1,024 steps an epoch this just keeps U C V^T exact (SPEC 4.5).
_RAW_QUANTUM_EXP = -5
_RAW_CLIP = 1_024
RATE_MIN, RATE_MAX = 1e-9, 1.0  # beyond these nothing is learnt, or everything is lost
DENSE_RATE_MAX = 1024.0  # up to 16 with label words; with candidates over the size of the stream's end
RANK = 32
BITS = 4  # of a number in a dense message: docs/decisions/0034-fewer-bits.md
LEARNING_RATE = 3e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Holds how a run trains, in the usual terms; the manifest holds the integers computed from them.

    None: 32, canonical, raw and `LEARNING_RATE`, or what a dense core has. The learning rate is the length of a step.
    Raw: the weights move by lr x mean over directions of g z. Normalised: by lr x mean of (g / rms g) z, so that it is
    a length and not a rate.
    """

    rank: int | None = given(
        None,
        "Search a subspace of this rank in each tensor, a power of two. A higher rank can express more and is "
        f"noisier.  [default: {RANK}]",
    )
    core: CoreKind | None = given(
        None,
        "Send the gradient by all coordinates of a subspace (`dense`), or slopes along drawn directions: "
        "`canonical` moves one coordinate, `rademacher` all of them by plus or minus one.  [default: dense where "
        "it can be, else canonical]",
    )
    scalar: ScalarKind | None = given(
        None,
        "Send projected gradients in this form: `raw` as measured, `normalised` divided by their root mean square."
        "  [default: raw]",
    )
    directions: int = given(
        8, "Try this many random directions per step. More make a step slower and its result less noisy."
    )
    sides: int = given(
        2,
        "Measure each direction on this many sides of the weights: 2 for central differences, 1 for forward "
        "differences, which cost about half and are less exact.",
        bounds=(1, 2),
    )
    shares: int = given(1, "Measure this many directions of a step on the same examples. It must divide --directions.")
    local_steps: int = given(1, "Make this many steps before signing and sending them as one message.")
    learning_rate: float | None = given(
        None,
        "Scale what one message changes in the weights by this factor; the messages of all nodes add up. Lower it "
        f"when the loss jumps or rises.  [default: {LEARNING_RATE:g}, or what suits the basis of a dense core]",
    )
    epsilon_exp: int = given(
        -10, "Measure each direction this far from the weights, as a power of two.", bounds=(-30, 0)
    )
    schedule: ScheduleKind = given(
        ScheduleKind.LINEAR,
        "Change the learning rate over the run: `linear` lets it fall to zero, or to a third where a dense core learns "
        "label words; `constant` keeps it.",
    )
    epoch_steps: int = 1_024
    bits: Literal[2, 4, 8] | None = given(
        None,
        "Send each number of a dense core in this many bits. Fewer make messages shorter and coarser.  "
        f"[default: {BITS}]",
    )


def method_of(options: MethodOptions) -> tuple[Method, Schedule]:
    """Return method and schedule of a run that draws its directions. OperatorError for an impossible learning rate."""
    scalar = options.scalar or ScalarKind.RAW
    is_raw = scalar is ScalarKind.RAW
    method = Method(
        rank=options.rank or RANK,
        epoch_steps=options.epoch_steps,
        basis_sha256="",
        core_rows=0,
        noise_rows=0,
        energy_max=0,
        sides=options.sides,
        shares=options.shares,
        core=options.core or CoreKind.CANONICAL,
        scalar=scalar,
        epsilon_exp=options.epsilon_exp,
        directions=options.directions,
        local_steps=options.local_steps,
        alpha_exp=0,
        quantum_exp=_RAW_QUANTUM_EXP if is_raw else 0,
        clip=_RAW_CLIP if is_raw else NORMALISED_CLIP,
    )
    rate = LEARNING_RATE if options.learning_rate is None else options.learning_rate
    # The view moves by alpha w q z per direction, and q is g / 2^quantum_exp or 32 g / rms: solve for alpha w.
    per_unit = 2.0**_RAW_QUANTUM_EXP if is_raw else 1.0 / NORMALISED_UNIT
    # More bits meet a learning rate more closely. The exact sum U C V^T of AUTHORS_MAX authors has COEFFICIENT_BITS_MAX
    # bits (SPEC 4.5): what all other factors leave is room for the weight.
    others = AUTHORS_MAX * method.epoch_steps * method.scalar_mass_max * method.product_max
    bits = max(_WEIGHT_BITS_MIN, min(_WEIGHT_BITS_MAX, COEFFICIENT_BITS_MAX - (others - 1).bit_length()))
    alpha_exp, weight = _weight_of(checked_rate(rate, RATE_MAX) * per_unit / method.directions, bits)
    return replace(method, alpha_exp=alpha_exp), _schedule(options.schedule, weight)


def dense_method_of(
    schedule: ScheduleKind, learning_rate: float, sha256: str, dense: DenseSettings, batch_rows: int, end: float = 0.0
) -> tuple[Method, Schedule]:
    """Return method and schedule of a run whose messages hold a dense core. OperatorError: an impossible rate.

    ``sha256``: of the basis's file. ``batch_rows``: of a message at most. ``end``: share of the rate that is left at
    the end of a linear schedule.
    """
    rate = checked_rate(learning_rate)
    # A step of many rows moves the core by alpha w times their mean gradient, in units of 2^quantum_exp.
    alpha_exp, weight = _weight_of(math.ldexp(rate, dense.quantum_exp), _WEIGHT_BITS_MAX)
    method = Method(
        **asdict(dense),
        epoch_steps=1,
        basis_sha256=sha256,
        sides=1,
        shares=1,
        core=CoreKind.DENSE,
        scalar=ScalarKind.RAW,
        epsilon_exp=0,
        directions=batch_rows,
        local_steps=1,
        alpha_exp=alpha_exp,
    )
    return method, _schedule(schedule, weight, end)


def _schedule(kind: ScheduleKind, weight: int, end: float = 0.0) -> Schedule:
    end = 1.0 if kind is ScheduleKind.CONSTANT else end
    return Schedule(kind=kind, weight_start=weight, weight_end=round(end * weight))


def checked_rate(rate: float, most: float = DENSE_RATE_MAX) -> float:
    """Return the learning rate of a run, with a dense core as a rule; OperatorError: it is out of bounds."""
    if not (RATE_MIN <= rate <= most):
        allowed = f"{RATE_MIN:g} ... {most:g}"
        raise OperatorError(f"--learning-rate {rate:g}: must be a number of {allowed}, such as 0.001")
    return rate


def _weight_of(wanted: float, bits: int) -> tuple[int, int]:
    alpha_exp = math.frexp(wanted)[1] - bits
    weight = hashing.round_half_away(math.ldexp(wanted, -alpha_exp))
    # Just below a power of two the weight rounds up to 2^bits, which needs one bit more: halve it and double alpha.
    return (alpha_exp, weight) if weight < 1 << bits else (alpha_exp + 1, weight // 2)


def build_manifest(manifest: Manifest, settings: Mapping[str, object] | None = None) -> Manifest:
    """Return the manifest with its rules checked; OperatorError names the field that breaks one.

    ``settings`` are fields of it as plain data, which replace or complete its own.
    """
    try:
        return checked(_merged(to_plain(manifest, as_rows=False), settings or {}))
    except Reject as reject:
        if settings:  # in which fields have the manifest's names
            raise OperatorError(f"the manifest would not be valid: {reject.detail}") from None
        raise OperatorError(f"these options make no run: {_as_options(reject.detail, manifest)}") from None


def _as_options(complaint: str, manifest: Manifest) -> str:
    """Return what is said of a manifest's fields in terms of the options that they come from, with their values."""
    defaults = to_plain(MethodOptions(), as_rows=False)
    options = {*defaults, "batch_rows", "max_tokens", "steps", "pow_bits", "staleness"}

    def named(found: re.Match[str]) -> str:
        path = found[0].removeprefix("manifest.").split(".")
        if path[-1] not in options:
            return found[0]
        value = functools.reduce(getattr, path, cast(object, manifest))
        if path[-1] == "directions" and manifest.method.is_dense:
            path[-1] = "batch_rows"
        if path[-1] == "epoch_steps":  # no option
            return f"the steps of an epoch, {value}"
        default = " (the default)" if value == defaults.get(path[-1]) else ""
        return f"--{path[-1].replace('_', '-')} {value}{default}"

    return re.sub(
        r"(?:manifest\.)?(?:task|method|admission)\.[a-z_]+|(?:manifest\.|^)(?:steps|staleness)\b", named, complaint
    )


def read_toml(path: Path) -> dict[str, object]:
    """Return the settings in a TOML file; OperatorError names the line that is wrong."""
    try:
        text = disk.read_bytes(path, "the settings file").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.rstrip().count(chr(10)) + 1}, the end of the file"
        raise OperatorError(f"{path}: not valid TOML: {str(error).replace('at end of document', end)}") from None


def _merged(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return ``base`` with the entries of ``over``; tables are merged, other values replaced."""
    result = dict(base)
    for key, value in over.items():
        held = result.get(key)
        result[key] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result
