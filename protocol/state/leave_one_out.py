"""Estimates from the ledger alone how the loss would change, to first order, without an author's updates.

All computation is in the coordinates of the subspace, where neither an update nor a slope needs the basis. An author's
updates have moved the coordinates of an epoch by -2^alpha_exp C, so leaving them out moves these by +2^alpha_exp C. To
first order, the loss changes by the product of that move and the gradient. The gradient is not in the ledger. But each
scalar is a slope along a known random direction, and scalar times direction is an unbiased estimate of the gradient.
This file averages it over all scalars of the *other* authors in the epoch, weighted by the schedule, so that no author
can improve its own result. The results are floats for people to read; nodes do not agree on them.

A dense step moves by a quotient, and what leaving an author out changes is that with and without its rows. A message is
the gradient itself. The others' messages of the same step are in the quotient too, and their noise would be multiplied
by itself. So the gradient is the mean of the others' messages in the steps just before and after.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger
from protocol.run import CoreKind, Manifest, ScalarKind
from protocol.state.coefficients import Coefficients, dense_core
from protocol.state.replica import Replica
from protocol.subspace import NORMALISED_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingOut:
    """The first-order effect on the objective of leaving an author out.

    Attributes:
        change: of the objective per example; greater than zero: it would be worse. With raw scalars in the objective's
            unit. Normalised scalars do not contain the steepness of the slopes: then in units of the root mean square
            of a message's slopes.
        error: standard error of ``change``, in the same unit, due to the random directions. It does not include that
            the messages see different examples. With a dense core this is all that it includes.
        updates: number of the author's updates in epochs that others have measured, too, or next to dense steps that
            others have. The rest has no estimate.
    """

    change: float
    error: float
    updates: int


@dataclass(slots=True)
class _EpochSums:
    """Sums over the updates of an author, or of all, in one epoch.

    Attributes:
        updates: how many.
        weights, weight_squares, squares: the sums of w, w^2 and (w q)^2 over the scalars q that were measured.
        with_others, with_own: products of the author's coefficients with those of all others, and with themselves.
    """

    updates: int = 0
    weights: int = 0
    weight_squares: int = 0
    squares: float = 0.0
    with_others: float = 0.0
    with_own: float = 0.0


def effects_of_leaving_out(
    replica: Replica, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[Author, LeavingOut | None]:
    """Estimate the effect of every author in the ledger; None for an author in whose epochs nobody else has measured.

    ``on_progress`` receives progress as (authors done, authors in all), or steps with a dense core.
    Cost: about the time to sum the ledger once more, and memory for one author's state.
    """
    authors = sorted(replica.ledger.authors())
    if replica.manifest.method.is_dense:
        dense = _dense_effects(replica, on_progress)
        return {author: dense.get(author) for author in authors}
    parts: dict[Author, dict[int, _EpochSums]] = {}
    in_all: dict[int, _EpochSums] = {}
    for number, author in enumerate(authors, start=1):
        parts[author] = _part(replica, author)
        for epoch, sums in parts[author].items():
            total = in_all.setdefault(epoch, _EpochSums())
            total.weights += sums.weights
            total.weight_squares += sums.weight_squares
            total.squares += sums.squares
        on_progress(number, len(authors))
    return {author: _effect(replica.manifest, part, in_all) for author, part in parts.items()}


def _part(replica: Replica, author: Author) -> dict[int, _EpochSums]:
    """Compute one author's sums. Read its updates twice rather than keep them, since there may be a million."""
    manifest, state, own = replica.manifest, replica.coefficients(), Coefficients(replica.manifest)
    # The mean of scalar times direction is too small by a factor, float64[layout.size]. A Rademacher direction has all
    # coordinates of each tensor: 1. A canonical one has a single coordinate of each: the tensor's size.
    sizes = np.diff(own.layout.offsets, append=own.layout.size)
    is_canonical = manifest.method.core is CoreKind.CANONICAL
    rarity = np.repeat(sizes if is_canonical else np.ones_like(sizes), sizes).astype(np.float64)
    own.add(replica.ledger.slots.counted(author, range(manifest.steps)))
    found = _sums(manifest, replica.ledger.slots.counted(author, range(manifest.steps)))
    for epoch, sums in found.items():
        mine = own.flat(epoch).astype(np.float64)
        sums.with_others = float(np.sum(rarity * mine * (state.flat(epoch) - mine)))
        sums.with_own = float(np.sum(rarity * mine * mine))
    return found


def _sums(manifest: Manifest, updates: Iterable[Envelope]) -> dict[int, _EpochSums]:
    method, found = manifest.method, dict[int, _EpochSums]()
    for update in updates:
        sums = found.setdefault(update.step // method.epoch_steps, _EpochSums())
        sums.updates += 1
        measured = method.directions_measured(update.scalars)  # the others' zeros are no slopes of zero
        for k in range(method.local_steps):
            scalars = update.scalars[k * method.directions : (k + 1) * method.directions]
            weight = manifest.weight(update.step + k)
            sums.weights += weight * measured
            sums.weight_squares += weight**2 * measured
            sums.squares += float(weight**2 * sum(scalar * scalar for scalar in scalars))
    return found


def _effect(manifest: Manifest, part: Mapping[int, _EpochSums], in_all: Mapping[int, _EpochSums]) -> LeavingOut | None:
    """Sum the epochs.

    A scalar q = z g and the product z c with the author's coefficients are of one random direction z. As for Gaussian
    ones, q z c has the mean g c, and the variance |g|^2 |c|^2 + (g c)^2: the more, the more they move along the slope.
    """
    method, change, variance, updates = manifest.method, 0.0, 0.0, 0
    for epoch, own in part.items():
        in_epoch = in_all[epoch]
        weights = in_epoch.weights - own.weights
        if weights:
            mean = own.with_others / weights
            change += mean
            variance += own.with_own * (in_epoch.squares - own.squares) / weights**2
            variance += mean**2 * (in_epoch.weight_squares - own.weight_squares) / weights**2
            updates += own.updates
    slope = 2.0**method.quantum_exp if method.scalar is ScalarKind.RAW else 1.0 / NORMALISED_UNIT
    unit = math.ldexp(slope, method.alpha_exp)  # of a scalar times a coordinate
    return LeavingOut(change=unit * change, error=unit * math.sqrt(variance), updates=updates) if updates else None


# --- dense cores


@dataclass(slots=True, kw_only=True)
class _DenseStep:
    """The messages of a step: n authors, their rows float64[n], and their numbers float64[n, d]."""

    step: int
    authors: list[Author]
    rows: NDArray[np.float64]
    numbers: NDArray[np.float64]

    def moves(self, manifest: Manifest) -> NDArray[np.float64]:
        """Return what each author has moved, float64[n, d]: the quotient less the one without their rows."""
        own = np.column_stack([self.rows, self.rows[:, None] * self.numbers]).astype(np.int64)
        in_all = own.sum(axis=0)
        core = dense_core(manifest, self.step, in_all)
        return np.stack([core - dense_core(manifest, self.step, in_all - each) for each in own])[:, 1:].astype(float)


def _dense_steps(ledger: Ledger) -> Iterator[_DenseStep]:
    for step, members in groupby(ledger.slots.envelopes(), key=attrgetter("step")):
        found = list(members)
        yield _DenseStep(
            step=step,
            authors=[each.author for each in found],
            rows=np.array([each.scalars[0] for each in found], float),
            numbers=np.stack([each.numbers for each in found]).astype(float),
        )


def _dense_effects(replica: Replica, on_progress: Callable[[int, int], None]) -> dict[Author, LeavingOut]:
    manifest, found = replica.manifest, dict[Author, LeavingOut]()
    coming = _dense_steps(replica.ledger)
    before, now = None, next(coming, None)
    while now is not None:
        after = next(coming, None)
        _add_dense(manifest, found, now, [each for each in (before, after) if each])
        on_progress(now.step + 1, manifest.steps)
        before, now = now, after
    return found


def _add_dense(manifest: Manifest, found: dict[Author, LeavingOut], step: _DenseStep, near: list[_DenseStep]) -> None:
    """Add what the authors of ``step`` have moved, times the mean gradient of the others ``near`` it."""
    if not near:
        return
    names = np.array([author for each in near for author in each.authors], dtype="S32")
    rows_nm = np.concatenate([each.rows for each in near]) * (np.array(step.authors, dtype="S32")[:, None] != names)
    slopes_nm = step.moves(manifest) @ np.concatenate([each.numbers for each in near]).T
    unit = 2.0 ** (manifest.method.alpha_exp + manifest.method.quantum_exp)
    for author, rows, slopes in zip(step.authors, rows_nm, slopes_nm, strict=True):
        others = int(np.count_nonzero(rows))
        if not others:
            continue
        weights = rows / rows.sum()
        change = float(weights @ slopes)
        # One message has no spread: then it may be all noise. Each message counts for two steps, before and after it,
        # and (x + y)^2 <= 2 (x^2 + y^2).
        spread = (slopes - change) ** 2 * others / (others - 1) if others > 1 else slopes**2
        variance = 2 * float(weights**2 @ spread)
        so_far = found.get(author, LeavingOut(change=0.0, error=0.0, updates=0))
        found[author] = LeavingOut(
            change=so_far.change + unit * change,
            error=math.hypot(so_far.error, unit * math.sqrt(variance)),
            updates=so_far.updates + 1,
        )
