"""How a run learns: the part of the manifest about the subspace, the estimator and the learning rate (SPEC 1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from protocol import limits
from protocol.schema import Bound, OptionalHex32, is_hex


class CoreKind(StrEnum):
    """Directions of a message: drawn by its seed (one signed coordinate, or all signs), or every coordinate."""

    CANONICAL = "canonical"
    RADEMACHER = "rademacher"
    DENSE = "dense"


class ScalarKind(StrEnum):
    """What a projected gradient becomes on the wire: multiples of a quantum, or normalised by their own rms."""

    RAW = "raw"
    NORMALISED = "normalised"


class ScheduleKind(StrEnum):
    """How the learning-rate weight changes over the run."""

    CONSTANT = "constant"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The estimator and the update rule. All scales are powers of two, so that scaling never rounds.

    Attributes:
        rank: r, of the subspace of every tensor; a power of two.
        epoch_steps: T, steps before the subspace is redrawn.
        basis_sha256: the SHA-256 of the file of a dense core's basis; empty with other cores, whose bases are random.
        core_rows: number of rows of a dense core, of ``rank`` columns; 0 with other cores.
        noise_rows: N; a dense step of R rows moves the core by the part R / (R + N) of its weight; 0 with other cores.
        energy_max: largest sum of q^2 in a dense message; 0 with other cores.
        epsilon_exp: epsilon = 2^epsilon_exp, width of the finite difference to one side.
        sides: 2: central differences; 1: forward differences from one pass without perturbation.
        directions: D per step; with a dense core the largest number of rows that a message may stand for.
        shares: how many directions are measured on the same examples.
        local_steps: K steps per envelope.
        alpha_exp: alpha = 2^alpha_exp scales coefficients to weights.
        quantum_exp: raw scalars are multiples of 2^quantum_exp.
        clip: largest |q|; 1, 7 or 127 with a dense core, whose numbers then have 2, 4 or 8 bits.
    """

    rank: Annotated[int, Bound(1, limits.RANK_MAX)]
    epoch_steps: Annotated[int, Bound(1, limits.STEPS_MAX)]
    basis_sha256: OptionalHex32
    core_rows: Annotated[int, Bound(0, limits.RANK_MAX)]
    noise_rows: Annotated[int, Bound(0, limits.NOISE_ROWS_MAX)]
    energy_max: Annotated[int, Bound(0, limits.ENERGY_MAX)]
    core: CoreKind
    scalar: ScalarKind
    epsilon_exp: Annotated[int, Bound(-30, 0)]
    sides: Annotated[int, Bound(1, 2)]
    directions: Annotated[int, Bound(1, limits.DIRECTIONS_MAX)]
    shares: Annotated[int, Bound(1, limits.DIRECTIONS_MAX)]
    local_steps: Annotated[int, Bound(1, limits.LOCAL_STEPS_MAX)]
    alpha_exp: Annotated[int, Bound(-60, 0)]
    quantum_exp: Annotated[int, Bound(-40, 10)]
    clip: Annotated[int, Bound(1, limits.CLIP_MAX)]

    @property
    def is_dense(self) -> bool:
        """Return whether a message holds every coordinate of the core (SPEC 5.6)."""
        return self.core is CoreKind.DENSE

    @property
    def scalars(self) -> int:
        """Return the number of directions of a round: D x K. An envelope has a scalar for each unless it is dense."""
        return self.directions * self.local_steps

    @property
    def number_bits(self) -> int:
        """Return the bits of a number in a dense message: the fewest whose two's complement holds +-clip."""
        return self.clip.bit_length() + 1

    @property
    def blocks(self) -> int:
        """Return how many blocks a step's batch has; the directions of a block share its examples."""
        return self.directions // self.shares

    @property
    def scalar_mass_max(self) -> int:
        """Return the largest sum of |q| over the directions of one step in a valid envelope (SPEC 5.2)."""
        return self.directions * (self.clip if self.scalar is ScalarKind.RAW else limits.NORMALISED_MASS)

    @property
    def product_max(self) -> int:
        """Return the largest |entry| of U C V^T for cores C of entries up to one, U and V in integers."""
        return self.rank * self.core_rows * limits.BASIS_ENTRY_MAX**2 if self.is_dense else self.rank**2

    def directions_measured(self, scalars: Sequence[int]) -> int:
        """Estimate how many of D directions the author of a round's K x D ``scalars`` measured (SPEC 9.1).

        The result is whole blocks up to the last scalar of any local step that is not zero, or D when all are zero.
        A dense message says itself how many rows it stands for.
        """
        if self.is_dense:
            return scalars[0]
        last = max((place % self.directions + 1 for place, scalar in enumerate(scalars) if scalar), default=0)
        return -(-last // self.shares) * self.shares or self.directions


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The integer learning-rate weight w(step), from ``weight_start`` (step 0) to ``weight_end`` (the last step)."""

    kind: ScheduleKind
    weight_start: Annotated[int, Bound(1, limits.WEIGHT_MAX)]
    weight_end: Annotated[int, Bound(0, limits.WEIGHT_MAX)]

    def weight(self, step: int, steps: int) -> int:
        """Return w(step) in a run of ``steps`` (SPEC 5.3): linear interpolation rounded half up, never negative."""
        if self.kind is ScheduleKind.CONSTANT or steps == 1:
            return self.weight_start
        span = steps - 1
        return (2 * (self.weight_start * (span - step) + self.weight_end * step) + span) // (2 * span)


# Of a dense core: what an author measures is neither a difference nor drawn.
_FIXED_IF_DENSE = (ScalarKind.RAW, 0, 1, 1, 1, 1)
_DENSE_CLIPS = (1, 7, limits.DENSE_CLIP_MAX)  # all but one of the values of 2, 4 or 8 bits


def broken_method_rules(method: Method) -> Iterator[str]:
    """Check the rules between fields of a method (SPEC 1.4); yield a complaint for each that is broken."""
    normalised = method.scalar is ScalarKind.NORMALISED
    fixed = (method.scalar, method.epsilon_exp, method.sides, method.shares, method.local_steps, method.epoch_steps)
    dense_only = (method.core_rows, method.noise_rows, method.energy_max)
    if method.rank & (method.rank - 1) != 0:
        yield f"method.rank: {method.rank} is not a power of two"
    if method.scalars > limits.SCALARS_MAX:
        yield f"method: directions x local_steps exceeds {limits.SCALARS_MAX}"
    if method.epoch_steps % method.local_steps != 0:
        yield "method.epoch_steps: not a multiple of method.local_steps"
    if method.directions % method.shares != 0:
        yield "method.directions: not a multiple of method.shares"
    if normalised and method.directions < 2:
        yield "method.directions: normalised scalars need at least 2"
    if normalised and method.clip != limits.NORMALISED_CLIP:
        yield f"method.clip: must be {limits.NORMALISED_CLIP} with normalised scalars"
    if is_hex(method.basis_sha256, 64) != method.is_dense or (method.basis_sha256 != "") != method.is_dense:
        yield "method.basis_sha256: 64 lower-case hex digits with dense cores, else empty"
    if {size > 0 for size in dense_only} != {method.is_dense}:
        yield "method.core_rows, method.noise_rows, method.energy_max: positive with dense cores, else 0"
    if method.is_dense and fixed != _FIXED_IF_DENSE:
        yield "method: dense cores need raw scalars, one side, and rounds and epochs of one step (SPEC 1.4.14)"
    if method.is_dense and method.clip not in _DENSE_CLIPS:
        yield "method.clip: 1, 7 or 127 with dense cores, for numbers of 2, 4 or 8 bits"
