"""Import OpenDP, which has few types. Only nodes with noise need it (the extra ``privacy``)."""

from importlib import import_module
from typing import Any, Final

from protocol.errors import OperatorError
from sfnode.extras import how_to_add

_LIBRARY: Final = "opendp.prelude"


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
