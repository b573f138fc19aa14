"""Hide whether a row was among those of a message, and state what that guarantees: from the uses of rows to epsilon.

*The noise* (`NoisySum`). Each row is clipped to one public length, and brought to whole numbers by truncation toward
zero: neither step can make it longer than that. The sum of whole numbers is exact, so replacing one row moves it by at
most twice the length. Discrete Gaussian noise on each number hides such a move (Canonne, Kamath and Steinke 2020). No
float comes between the clipped rows and the noise, and all that follows is arithmetic on what is public.

*The guarantee* (`RowUses`, `epsilon`). Neighbours are two data files of equally many rows that differ in one row.
Adding or removing a row is no neighbour here: the number of rows says which ones a seed draws, so it would change all
later messages. Replacing a row moves a message's sum by at most twice the clipped length for each time that the message
drew the row. The noise is a multiple of the clipped length, as usual. So a message that drew a row c times is
(2 c / m)^2 / 2-zCDP for it (the same, Theorem 14), and those of all messages add up. Everybody knows the seeds, and
with them which messages drew a row: chance adds no protection.
"""

import math
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Author
from protocol.errors import OperatorError
from protocol.run import Manifest, Method
from protocol.subspace import drawn_examples
from sfnode.extras import how_to_add

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LIBRARY = "opendp.prelude"  # only nodes with noise need it (the extra `privacy`); it has few types
# The length of a row in whole numbers. Truncation costs at most one for each number: nothing, even of 2^20 numbers.
# Squares of a row add up to 2^48, and a message's rows to 2^32: int64 holds both.
ROW_LENGTH = 1 << 24
_BELOW_ONE = 1 - 2.0**-30  # floats err by less, so that no rounded row is longer than ROW_LENGTH

RowsOfStep = tuple[int, int]  # a step, and of how many rows its message is
_DELTA_MAX = 1e-5
_RHO_MAX = 500.0  # far beyond any protection; the library's exponentials overflow somewhere above


def length_max(method: Method, numbers: int) -> float:
    """Return the length of the longest mean gradient that a message of ``numbers`` numbers can hold (SPEC 5.6).

    It follows from the manifest alone, so it says nothing of any row.
    """
    return max(1.0, math.sqrt(method.energy_max) - math.sqrt(numbers) / 2) * 2.0**method.quantum_exp


class NoisySum:
    """Adds up rows of ``numbers`` numbers, each clipped to ``row_length_max``.

    Attributes:
        total: the sum, int64, in units of row_length_max / ROW_LENGTH. Nobody else may see it.
    """

    def __init__(self, numbers: int, row_length_max: float) -> None:
        self._unit = row_length_max / ROW_LENGTH
        self._length_max = row_length_max
        self.total = np.zeros(numbers, dtype=np.int64)
        self._rows = 0

    def add(self, gradient: Floats) -> None:
        self.total += whole_numbers(gradient, self._length_max)
        self._rows += 1

    def noisy_mean(self, multiplier: float) -> Floats:
        """Return the mean of the rows with noise of ``multiplier`` clipped lengths in the sum.

        OperatorError: OpenDP is not installed.
        """
        noisy = gaussian_measurement(multiplier * ROW_LENGTH)(self.total.tolist())
        return np.array(noisy, dtype=np.float64) * (self._unit / self._rows)


def whole_numbers(gradient: Floats, row_length_max: float) -> Integers:
    """Return a gradient in units of row_length_max / ROW_LENGTH; its length is at most ROW_LENGTH, exactly.

    A gradient that is not finite becomes zero: a message that is missing would betray the row.
    """
    largest = float(np.abs(gradient).max())
    if not math.isfinite(largest) or largest == 0.0:
        return np.zeros(len(gradient), dtype=np.int64)
    relative = gradient / largest  # no overflow in the squares
    length = largest * math.sqrt(float(relative @ relative))
    found = np.trunc(gradient * (_BELOW_ONE * ROW_LENGTH / max(length, row_length_max))).astype(np.int64)
    assert int(found @ found) <= ROW_LENGTH**2, "a clipped row is too long"
    return found


def gaussian_measurement(scale: float) -> Any:
    """Return OpenDP's measurement that adds discrete Gaussian noise of width ``scale`` to each of some whole numbers.

    Its randomness is the system's. OperatorError: OpenDP is not installed.
    """
    library = opendp()
    space = library.vector_domain(library.atom_domain(T="i64")), library.l2_distance(T=float)
    return library.m.make_gaussian(*space, scale=scale)


def opendp() -> Any:
    """Return the library. OperatorError: it is not installed."""
    try:
        library = import_module(_LIBRARY)
    except ImportError as error:
        raise OperatorError(
            f"--noise needs OpenDP, which this install lacks ({error}): {how_to_add('privacy')}"
        ) from None
    library.enable_features("contrib")  # OpenDP's name for what has a published proof, and awaits its second review
    return library


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

    A message that has a row c times, for want of others, counts c^2 uses of it.
    """

    def __init__(self, manifest: Manifest, author: Author, data_rows: int) -> None:
        self._manifest = manifest
        self._author = author
        self._uses: NDArray[np.int64] = np.zeros(data_rows, dtype=np.int64)

    def add(self, messages: Iterable[RowsOfStep]) -> None:
        """Count messages: each is of the first rows whose turn it is at its step."""
        batch_rows = self._manifest.task.batch_rows
        for step, rows in messages:
            taken = drawn_examples.examples_in_turn(self._manifest, self._author, step, self.rows, batch_rows)[:rows]
            self._uses += np.bincount(taken, minlength=self.rows).astype(np.int64) ** 2

    @property
    def rows(self) -> int:
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
