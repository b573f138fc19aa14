"""How the loss would change, to first order, were an author's updates left out: estimated from the ledger alone.

All of it happens in the coordinates of the subspace, where neither an update nor a slope needs the basis. An author's
updates have moved the coordinates of an epoch by -2^alpha_exp C: leaving them out moves these by +2^alpha_exp C, and to
first order the loss changes by the product of that and its gradient. The gradient is not in the ledger. But each scalar
is a slope along a known random direction, and scalar times direction is an estimate of the gradient without bias. It is
averaged here over all scalars of the *other* authors in the epoch, weighted by the schedule. Nobody's own word counts
for their own part. Floats, for people to read: nothing of it is agreed between nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger
from protocol.run import CoreKind, Manifest, ScalarKind
from protocol.state.coefficients import CoefficientLayout, Coefficients
from protocol.state.replica import Replica
from protocol.subspace import NORMALISED_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingOut:
    """What leaving an author out does to the objective, to first order; greater than zero: it would be worse.

    Attributes:
        change: of the objective per example, with raw scalars. Normalised ones do not say how steep the slopes were:
            then in units of the root mean square of a message's slopes.
        error: standard error of ``change``, in the same unit, of the random directions; that the messages see different
            examples is not in it.
        updates: of the author, in the epochs in which others have measured; of the rest nothing can be told.
    """

    change: float
    error: float
    updates: int


@dataclass(slots=True)
class _EpochSums:
    """Of some of an epoch's updates: how many they are and, of the scalars q that they measured, the sums of w and of
    (w q)^2.
    """

    updates: int = 0
    weights: int = 0
    squares: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An author's own sums, and products of their coefficients by epoch: with those of all others, and with themselves.

    A coordinate counts as often as it is rarer in a canonical direction than in a Rademacher one.
    """

    own: Mapping[int, _EpochSums]
    with_others: Mapping[int, float]
    with_own: Mapping[int, float]


def effects_of_leaving_out(
    replica: Replica, tell: Callable[[int, int], None] = lambda done, total: None
) -> dict[Author, LeavingOut | None]:
    """Of every author of whom anything is held; None: nothing can be told, since nobody else has measured.

    ``tell`` hears of how many authors of how many the part is known.
    Costs about as much as to sum the ledger once more, and memory for one author's state.
    """
    authors = sorted(replica.ledger.authors())
    parts: dict[Author, _Part] = {}
    for number, author in enumerate(authors, start=1):
        parts[author] = _part(replica, author)
        tell(number, len(authors))
    in_all = _added([part.own for part in parts.values()])
    return {author: _told(replica.manifest, part, in_all) for author, part in parts.items()}


def _counted(ledger: Ledger, author: Author) -> Iterator[Envelope]:
    for span in ledger.spans():
        valid = ledger.holdings_of(span, author).valid
        yield from map(ledger.codec.decode_untrusted, ledger.records(span, author, valid))


def _part(replica: Replica, author: Author) -> _Part:
    """Reads the author's updates twice rather than keep them: there may be a million."""
    manifest, state, own = replica.manifest, replica.coefficients(), Coefficients(replica.manifest)
    rarity = _rarity(manifest, own.layout)
    own.add(_counted(replica.ledger, author))
    sums, with_others, with_own = _sums(manifest, _counted(replica.ledger, author)), {}, {}
    for epoch in sums:
        mine = own.flat(epoch).astype(np.float64)
        with_others[epoch] = float(np.sum(rarity * mine * (state.flat(epoch) - mine)))
        with_own[epoch] = float(np.sum(rarity * mine * mine))
    return _Part(own=sums, with_others=with_others, with_own=with_own)


def _rarity(manifest: Manifest, layout: CoefficientLayout) -> NDArray[np.float64]:
    """By what the average of scalar times direction is too small in each coordinate: float64[layout.size].

    A canonical direction has one coordinate of each tensor, a Rademacher one has all of them.
    """
    if manifest.method.core is CoreKind.RADEMACHER:
        return np.ones(layout.size)
    sizes = np.diff(layout.offsets, append=layout.size)
    return np.repeat(sizes, sizes).astype(np.float64)


def _sums(manifest: Manifest, updates: Iterable[Envelope]) -> dict[int, _EpochSums]:
    method, found = manifest.method, dict[int, _EpochSums]()
    for update in updates:
        sums = found.setdefault(update.step // method.epoch_steps, _EpochSums())
        sums.updates += 1
        measured = method.directions_measured(update.scalars)  # the zeros of the others are no slopes of zero
        for k in range(method.local_steps):
            scalars = update.scalars[k * method.directions : (k + 1) * method.directions]
            weight = manifest.weight(update.step + k)
            sums.weights += weight * measured
            sums.squares += float(weight**2 * sum(scalar * scalar for scalar in scalars))
    return found


def _added(parts: Sequence[Mapping[int, _EpochSums]]) -> dict[int, _EpochSums]:
    found: dict[int, _EpochSums] = {}
    for epoch, sums in (item for part in parts for item in part.items()):
        total = found.setdefault(epoch, _EpochSums())
        total.updates += sums.updates
        total.weights += sums.weights
        total.squares += sums.squares
    return found


def _told(manifest: Manifest, part: _Part, in_all: Mapping[int, _EpochSums]) -> LeavingOut | None:
    """The epochs summed. A random direction's product with fixed coefficients has their ``with_own`` as variance."""
    change, variance, updates = 0.0, 0.0, 0
    for epoch, own in part.own.items():
        weights = in_all[epoch].weights - own.weights
        if weights:
            change += part.with_others[epoch] / weights
            variance += part.with_own[epoch] * (in_all[epoch].squares - own.squares) / weights**2
            updates += own.updates
    unit = _unit(manifest)
    return LeavingOut(change=unit * change, error=unit * math.sqrt(variance), updates=updates) if updates else None


def _unit(manifest: Manifest) -> float:
    """Of a scalar times a coordinate."""
    method = manifest.method
    slope = 2.0**method.quantum_exp if method.scalar is ScalarKind.RAW else 1.0 / NORMALISED_UNIT
    return math.ldexp(slope, method.alpha_exp)
