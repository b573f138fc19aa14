"""Read JSON that strangers wrote, with bounds: no deep recursion, no repeated key, no number beyond binary64."""

import json
import math
import re
from collections.abc import Callable
from itertools import accumulate

from protocol.schema import Malformed

JSON_DEPTH_MAX = 64  # parsers recurse
WHITE = " \t\n\r\f\v"  # SPEC 1.6: Python's own set has more, JavaScript's others
EXACT_INTEGER_MAX = 1 << 53  # binary64 holds all up to here
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # whole, or to the end of the text


def read_json(text: str, where: str) -> object:
    """Return the value in a JSON text, without recursion deeper than `JSON_DEPTH_MAX`.

    Raises Malformed where it is no JSON, nests deeper, repeats a key, or holds a number beyond binary64.
    """
    try:
        return bounded_value(text, _unrepeated)
    except RecursionError:
        raise Malformed(f"{where}: lists and objects nest deeper than {JSON_DEPTH_MAX}") from None
    except ValueError as error:
        raise Malformed(f"{where}: not JSON: {error}") from None


def bounded_value(text: str, members: Callable[[list[tuple[str, object]]], dict[str, object]] = dict) -> object:
    """Return the value in a JSON text; ``members`` makes an object, by default with the last of repeated keys.

    Raises RecursionError where it nests deeper than `JSON_DEPTH_MAX`, ValueError where it is no JSON or holds a number
    beyond binary64.
    """
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX and _nesting(text) > JSON_DEPTH_MAX:
        raise RecursionError
    value: object = json.loads(
        text, object_pairs_hook=members, parse_constant=_number_of, parse_float=_number_of, parse_int=_number_of
    )
    return value


def _nesting(text: str) -> int:
    """Return how deep a JSON parser would get into lists and objects; in linear time for every text."""
    steps = ((character in "[{") - (character in "]}") for character in _STRING.sub("", text))
    return max(accumulate(steps, initial=0))


def decimal_of(text: str) -> float | None:
    """Return the binary64 nearest to a decimal number such as -12.50; None where ``text`` is none, or too large."""
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _number_of(text: str) -> float:
    """Return a number as binary64, or as the same int. ``text`` may be NaN or Infinity, which JSON does not have."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:32]} is not a number of JSON, or too large")
    is_whole = text.lstrip("-").isdecimal() and abs(value) <= EXACT_INTEGER_MAX
    return int(value) if is_whole else value
