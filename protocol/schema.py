"""Strict translation between frozen dataclasses and plain data (JSON mappings, msgpack rows).

The dataclass is the schema: exact types (``True`` is not an integer), declared bounds, no unknown and no missing field.
Whatever violates it raises :class:`Malformed` with the path of the offending field; nothing else escapes.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from protocol import limits

T = TypeVar("T")


class Malformed(Exception):
    """Plain data does not have the declared structure; the text names the field and what is allowed."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Inclusive range: of the value for an integer, of the length for text, bytes and tuples."""

    low: int
    high: int


U32 = Annotated[int, Bound(0, (1 << 32) - 1)]
U64 = Annotated[int, Bound(0, (1 << 64) - 1)]
Bytes32 = Annotated[bytes, Bound(32, 32)]
Name = Annotated[str, Bound(1, limits.NAME_LENGTH_MAX)]
Hex32 = Annotated[str, Bound(64, 64)]
OptionalHex32 = Annotated[str, Bound(0, 64)]


def to_plain(value: Any, *, as_rows: bool) -> Any:
    """A dataclass as a mapping by field name, or as a row in field order; tuples as lists; enums as their value."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        if as_rows:
            return [to_plain(getattr(value, name), as_rows=True) for name in names]
        return {name: to_plain(getattr(value, name), as_rows=False) for name in names}
    if isinstance(value, tuple):
        return [to_plain(item, as_rows=as_rows) for item in value]
    return value.value if isinstance(value, Enum) else value


def from_plain_untrusted(declared: type[T], data: object, where: str) -> T:
    """``data`` as an instance of the dataclass ``declared``; Malformed names the field below ``where``."""
    result: T = _convert(declared, data, where)
    return result


@cache
def _field_types(declared: type) -> Mapping[str, object]:
    hints = get_type_hints(declared, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(declared)}


def _convert(declared: Any, data: object, where: str) -> Any:
    bound: Bound | None = None
    if get_origin(declared) is Annotated:
        declared, bound = get_args(declared)[:2]
    if isinstance(declared, types.UnionType):  # the only union in use is "X | None"
        return None if data is None else _convert(get_args(declared)[0], data, where)
    if dataclasses.is_dataclass(declared):
        return _convert_dataclass(declared, data, where)
    converted: Any
    if get_origin(declared) is tuple:
        converted = _convert_tuple(get_args(declared)[0], data, where, bound)
    elif isinstance(declared, type) and issubclass(declared, Enum):
        return _convert_enum(declared, data, where)
    else:
        if type(data) is not declared:
            raise Malformed(f"{where}: {_show(data)} is not of type {declared.__name__}")
        if isinstance(data, str) and not _is_unicode(data):
            raise Malformed(f"{where}: half of a surrogate pair is not a character")
        converted = data
    _check_bound(converted, bound, where)
    return converted


def _convert_dataclass(declared: Any, data: object, where: str) -> Any:
    expected = _field_types(declared)
    if type(data) is list:
        if len(data) != len(expected):
            raise Malformed(f"{where}: {len(data)} fields where {len(expected)} are defined")
        named = dict(zip(expected, data, strict=True))
    elif type(data) is dict:
        named = data
    else:
        raise Malformed(f"{where}: {_show(data)} is not a structure")
    if unknown := [str(name) for name in named if name not in expected]:
        raise Malformed(f"{where}: unknown field {unknown[0][:64]!r}; known are {', '.join(expected)}")
    if missing := [name for name in expected if name not in named]:
        raise Malformed(f"{where}: field {missing[0]!r} is missing")
    return declared(**{name: _convert(kind, named[name], f"{where}.{name}") for name, kind in expected.items()})


def _convert_tuple(item: Any, data: object, where: str, bound: Bound | None) -> tuple[Any, ...]:
    if type(data) is not list:
        raise Malformed(f"{where}: {_show(data)} is not a list")
    _check_bound(data, bound, where)  # before the items: a long list costs nothing
    return tuple(_convert(item, entry, f"{where}[{index}]") for index, entry in enumerate(data))


def _convert_enum(declared: type[Enum], data: object, where: str) -> Enum:
    for member in declared:
        if type(data) is type(member.value) and data == member.value:
            return member
    allowed = ", ".join(repr(member.value) for member in declared)
    raise Malformed(f"{where}: {_show(data)} is not one of {allowed}")


def _check_bound(value: Any, bound: Bound | None, where: str) -> None:
    if bound is None:
        return
    measured = value if isinstance(value, int) else len(value)
    if not bound.low <= measured <= bound.high:
        what = "value" if isinstance(value, int) else "length"
        raise Malformed(f"{where}: {what} {measured} is outside {bound.low} ... {bound.high}")


def _is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8: JSON escapes can smuggle in what no file or terminal takes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _show(data: object) -> str:
    text = repr(data) if isinstance(data, (int, str, bytes, float, type(None))) else type(data).__name__
    return text if len(text) <= 64 else text[:61] + "..."


def is_hex(text: str, length: int) -> bool:
    """Whether ``text`` is exactly ``length`` lower-case hexadecimal digits."""
    return len(text) == length and all(digit in "0123456789abcdef" for digit in text)
