"""Strict translation between frozen dataclasses and plain data (JSON mappings, msgpack rows).

The dataclass is the schema: exact types (``True`` is not an integer), declared bounds, no unknown and no missing field.
Data that violates it raises :class:`Malformed` with the path of the offending field, and no other error.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, NewType, TypeVar, get_args, get_origin, get_type_hints

from protocol import limits

T = TypeVar("T")
_Converter = Callable[[object, str], Any]  # of plain data, and where it was found


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
    """Convert a dataclass to a mapping by field name or a row in field order, tuples to lists, enums to their value.

    Paths become text.
    """
    kind: Any = type(value)
    names = _field_names(kind)
    if names is None:
        if isinstance(value, tuple):
            return [to_plain(item, as_rows=as_rows) for item in value]
        if isinstance(value, Enum):
            return value.value
        return value.__fspath__() if hasattr(value, "__fspath__") else value
    if as_rows:
        return [to_plain(getattr(value, name), as_rows=True) for name in names]
    return {name: to_plain(getattr(value, name), as_rows=False) for name in names}


def canonical_json(value: Any) -> bytes:
    """Return the one ASCII JSON of a dataclass that is signed: sorted keys, no spaces (SPEC 1.2)."""
    return json.dumps(to_plain(value, as_rows=False), sort_keys=True, separators=(",", ":")).encode("ascii")


def from_plain_untrusted(declared: type[T], data: object, where: str) -> T:
    """Build an instance of the dataclass ``declared`` from ``data``; Malformed names the field below ``where``."""
    kind: Any = declared
    result: T = _converter(kind)(data, where)
    return result


def from_json_untrusted(declared: type[T], text: bytes | str, where: str) -> T:
    """Build an instance of ``declared`` from JSON; Malformed says what is no JSON, or names the field."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    return from_plain_untrusted(declared, data, where)


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, or None for any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@cache
def _converter(declared: Any) -> _Converter:
    """Return the function that makes a value of the declared type; cached, so that each type is inspected once."""
    bound: Bound | None = None
    if get_origin(declared) is Annotated:
        declared, bound = get_args(declared)[:2]
    if isinstance(declared, NewType):
        return _converter(declared.__supertype__)
    if isinstance(declared, types.UnionType):  # the only union in use is "X | None"
        convert = _converter(get_args(declared)[0])
        return lambda data, where: None if data is None else convert(data, where)
    if is_dataclass(declared):
        return _dataclass_converter(declared)
    if get_origin(declared) is tuple:
        item = _converter(get_args(declared)[0])
        return lambda data, where: _convert_tuple(item, data, where, bound)
    if issubclass(declared, Enum):
        return lambda data, where: _convert_enum(declared, data, where)
    if hasattr(declared, "__fspath__"):  # a path of this machine, whose own processes talk to each other
        return lambda data, where: declared(_convert_scalar(str, data, where))
    return lambda data, where: _convert_scalar(declared, data, where, bound)


def _dataclass_converter(declared: Any) -> _Converter:
    hints = get_type_hints(declared, include_extras=True)
    expected = {field.name: _converter(hints[field.name]) for field in fields(declared)}

    def convert(data: object, where: str) -> Any:
        named = _named(data, expected, where)
        return declared(**{name: take(named[name], f"{where}.{name}") for name, take in expected.items()})

    return convert


def _named(data: object, expected: Mapping[str, _Converter], where: str) -> Mapping[str, object]:
    """Return the fields of a mapping or a row by name. Raises Malformed unless they are exactly the expected ones."""
    if type(data) is list:
        if len(data) != len(expected):
            raise Malformed(f"{where}: {len(data)} fields where {len(expected)} are defined")
        return dict(zip(expected, data, strict=True))
    if type(data) is not dict:
        raise Malformed(f"{where}: {_show(data)} is not a structure")
    if unknown := [str(name) for name in data if name not in expected]:
        raise Malformed(f"{where}: unknown field {unknown[0][:64]!r}; known are {', '.join(expected)}")
    if missing := [name for name in expected if name not in data]:
        raise Malformed(f"{where}: field {missing[0]!r} is missing")
    return data


def _convert_scalar(kind: type, data: object, where: str, bound: Bound | None = None) -> Any:
    if type(data) is not kind:
        raise Malformed(f"{where}: {_show(data)} is not of type {kind.__name__}")
    if isinstance(data, str) and has_half_pair(data):
        raise Malformed(f"{where}: half of a surrogate pair is not a character")
    if bound is not None:
        _check_bound(data, bound, where)
    return data


def _convert_tuple(convert: _Converter, data: object, where: str, bound: Bound | None) -> tuple[Any, ...]:
    if type(data) is not list:
        raise Malformed(f"{where}: {_show(data)} is not a list")
    if bound is not None:
        _check_bound(data, bound, where)  # before the items: a long list costs nothing
    return tuple(convert(entry, f"{where}[{index}]") for index, entry in enumerate(data))


def _convert_enum(declared: type[Enum], data: object, where: str) -> Enum:
    for member in declared:
        if type(data) is type(member.value) and data == member.value:
            return member
    allowed = ", ".join(repr(member.value) for member in declared)
    raise Malformed(f"{where}: {_show(data)} is not one of {allowed}")


def _check_bound(value: Any, bound: Bound, where: str) -> None:
    measured = value if isinstance(value, int) else len(value)
    if not bound.low <= measured <= bound.high:
        what = "value" if isinstance(value, int) else "length"
        raise Malformed(f"{where}: {what} {measured} is outside {bound.low} ... {bound.high}")


def has_half_pair(text: str) -> bool:
    """Return whether a text cannot be UTF-8: escapes of JSON can hold half of a surrogate pair."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _show(data: object) -> str:
    text = repr(data) if isinstance(data, (int, str, bytes, float, type(None))) else type(data).__name__
    return text if len(text) <= 64 else text[:61] + "..."


def is_hex(text: str, length: int) -> bool:
    """Return whether ``text`` is exactly ``length`` lower-case hexadecimal digits."""
    return len(text) == length and all(digit in "0123456789abcdef" for digit in text)
