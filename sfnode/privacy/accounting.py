"""What the noise on a node's messages guarantees: from the uses of its rows to epsilon.

*Neighbours* are two data files of equally many rows that differ in one row. Adding or removing a row is no neighbour
here: the number of rows says which ones a seed draws, so it would change all later messages.

Replacing a row moves a message's sum by at most twice the clipped length for each time that the message drew the row.
The noise is a multiple of the *clipped length*, as usual. So a message that drew a row c times is (2 c / m)^2 / 2-zCDP
for it (Canonne, Kamath and Steinke 2020, Theorem 14), and those of all messages add up. Everybody knows the seeds, and
with them which messages drew a row: chance adds no protection.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Author, hashing
from protocol.run import Manifest
from protocol.subspace import example_indices
from sfnode.privacy.noisy_sum import ROW_LENGTH, gaussian_measurement, opendp

RowsOfStep = tuple[int, int]  # a step, and of how many rows its message is
_DELTA_MAX = 1e-5
_RHO_MAX = 500.0  # far beyond any protection; the library's exponentials overflow somewhere above


def delta_of(rows: int) -> float:
    """Return the delta for a data file of ``rows`` rows: 1e-5, or a tenth of a row where that is less."""
    return min(_DELTA_MAX, 1 / (10 * rows))


def epsilon(multiplier: float, uses: int, delta: float) -> float:
    """Return the epsilon that OpenDP states for a row with these uses (`RowUses.most`). OperatorError: no OpenDP."""
    if not uses:
        return 0.0
    rho = 2 * uses / multiplier**2
    if rho > _RHO_MAX:
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke 2016: a little more than the least
    measurement = gaussian_measurement(multiplier * ROW_LENGTH)
    # Several messages are as one whose sum moves by the root of the sum of squares.
    moved = 2.0 * ROW_LENGTH * math.sqrt(uses)
    return float(opendp().c.make_zCDP_to_approxDP(measurement).map(moved).epsilon(delta))


class RowUses:
    """Counts how often one node's messages have used each of its rows.

    A message that drew a row c times counts c^2 uses of it.
    """

    def __init__(self, manifest: Manifest, author: Author, data_rows: int) -> None:
        self._manifest = manifest
        self._author = author
        self._uses: NDArray[np.int64] = np.zeros(data_rows, dtype=np.int64)

    def add(self, messages: Iterable[RowsOfStep]) -> None:
        """Count messages: each is of the first rows that the seed of its step draws."""
        for step, rows in messages:
            seed = hashing.seed_of(self._manifest.run_id, self._author, step)
            drawn = example_indices(self._manifest, seed, 0, self.rows)[:rows]
            self._uses += np.bincount(drawn, minlength=self.rows).astype(np.int64) ** 2

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self._uses)

    @property
    def most(self) -> int:
        """Return the uses of the row that was used most."""
        return int(self._uses.max())

    def most_with(self, messages: Iterable[RowsOfStep]) -> int:
        """Return what `most` would be after further messages."""
        further = RowUses(self._manifest, self._author, self.rows)
        further._uses += self._uses
        further.add(messages)
        return further.most
