"""Estimates from the ledger alone how the loss would change, to first order, without an author's updates.

All computation is in the coordinates of the subspace, where neither an update nor a slope needs the basis. An author's
updates have moved the coordinates of an epoch by -2^alpha_exp C, so leaving them out moves these by +2^alpha_exp C. To
first order, the loss changes by the product of that move and the gradient. The gradient is not in the ledger. But each
scalar is a slope along a known random direction, and scalar times direction is an unbiased estimate of the gradient.
This file averages it over all scalars of the *other* authors in the epoch, weighted by the schedule, so that no author
can improve its own result. The results are floats for people to read; nodes do not agree on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger
from protocol.run import CoreKind, Manifest, ScalarKind
from protocol.state.coefficients import Coefficients
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
            the messages see different examples.
        updates: number of the author's updates in epochs that others have measured, too. The rest has no estimate.
    """

    change: float
    error: float
    updates: int


@dataclass(slots=True)
class _EpochSums:
    """Sums over the updates of an author, or of all, in one epoch.

    Attributes:
        updates: how many.
        weights, squares: the sums of w and (w q)^2 over the scalars q that were measured.
        with_others, with_own: products of the author's coefficients with those of all others, and with themselves.
    """

    updates: int = 0
    weights: int = 0
    squares: float = 0.0
    with_others: float = 0.0
    with_own: float = 0.0


def effects_of_leaving_out(
    replica: Replica, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[Author, LeavingOut | None]:
    """Estimate the effect of every author in the ledger; None for an author in whose epochs nobody else has measured.

    ``on_progress`` receives progress as (authors done, authors in all).
    Cost: about the time to sum the ledger once more, and memory for one author's state.
    """
    authors = sorted(replica.ledger.authors())
    parts: dict[Author, dict[int, _EpochSums]] = {}
    in_all: dict[int, _EpochSums] = {}
    for number, author in enumerate(authors, start=1):
        parts[author] = _part(replica, author)
        for epoch, sums in parts[author].items():
            total = in_all.setdefault(epoch, _EpochSums())
            total.weights += sums.weights
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
    own.add(_counted(replica.ledger, author))
    found = _sums(manifest, _counted(replica.ledger, author))
    for epoch, sums in found.items():
        mine = own.flat(epoch).astype(np.float64)
        sums.with_others = float(np.sum(rarity * mine * (state.flat(epoch) - mine)))
        sums.with_own = float(np.sum(rarity * mine * mine))
    return found


def _counted(ledger: Ledger, author: Author) -> Iterator[Envelope]:
    for span in ledger.slots.spans():
        valid = ledger.slots.holdings_of(span, author).valid
        yield from map(ledger.codec.decode_untrusted, ledger.slots.records(span, author, valid))


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
            sums.squares += float(weight**2 * sum(scalar * scalar for scalar in scalars))
    return found


def _effect(manifest: Manifest, part: Mapping[int, _EpochSums], in_all: Mapping[int, _EpochSums]) -> LeavingOut | None:
    """Sum the epochs. The product of a random direction with fixed coefficients has the variance ``with_own``."""
    method, change, variance, updates = manifest.method, 0.0, 0.0, 0
    for epoch, own in part.items():
        weights = in_all[epoch].weights - own.weights
        if weights:
            change += own.with_others / weights
            variance += own.with_own * (in_all[epoch].squares - own.squares) / weights**2
            updates += own.updates
    slope = 2.0**method.quantum_exp if method.scalar is ScalarKind.RAW else 1.0 / NORMALISED_UNIT
    unit = math.ldexp(slope, method.alpha_exp)  # of a scalar times a coordinate
    return LeavingOut(change=unit * change, error=unit * math.sqrt(variance), updates=updates) if updates else None
