"""Add up the gradients of one message's rows and hide whether a row was among them.

Each row is clipped to one public length, and brought to whole numbers by truncation toward zero: neither step can make
it longer than that. The sum of whole numbers is exact, so replacing one row moves it by at most twice the length.
Discrete Gaussian noise on each number hides such a move (Canonne, Kamath and Steinke 2020). No float comes between the
clipped rows and the noise, and all that follows is arithmetic on what is public.
"""

import math
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import OperatorError
from protocol.run import Method
from sfnode.extras import how_to_add

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LIBRARY = "opendp.prelude"  # only nodes with noise need it (the extra `privacy`); it has few types
# The length of a row in whole numbers. Truncation costs at most one for each number: nothing, even of 2^20 numbers.
# Squares of a row add up to 2^48, and a message's rows to 2^32: int64 holds both.
ROW_LENGTH = 1 << 24
_BELOW_ONE = 1 - 2.0**-30  # floats err by less, so that no rounded row is longer than ROW_LENGTH


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
        """Add a row's gradient."""
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
