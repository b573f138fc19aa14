"""Every bound of every field of a message (SPEC 8.1), also inside lists: values one beyond it on either side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from protocol.schema import Bound

_UNSIGNED_MAX = (1 << 64) - 1  # msgpack has no larger one


def beyond_bounds(declared: type) -> Iterator[tuple[str, list[Any]]]:
    """Rows of the fields of a message, of which one value is bad: its name with its place, and the row."""
    least = _least(declared)
    for place, (name, kind) in enumerate(get_type_hints(declared, include_extras=True).items()):
        for what, bad in _outside(kind):
            yield f"{name}{what}", [*least[:place], bad, *least[place + 1 :]]


def _least(declared: Any) -> Any:
    if is_dataclass(declared):
        return [_least(kind) for kind in get_type_hints(declared, include_extras=True).values()]
    if declared is bool:
        return False
    kind, bound = _bounded(declared)
    return bound.low if kind is int else _of_length(kind, bound.low)


def _bounded(declared: Any) -> tuple[Any, Bound]:
    assert get_origin(declared) is Annotated
    kind, *more = get_args(declared)
    return kind, next(each for each in more if isinstance(each, Bound))


def _of_length(kind: Any, length: int) -> Any:
    if kind in (str, bytes):
        return "x" * length if kind is str else bytes(length)
    return [_least(get_args(kind)[0])] * length


def _outside(declared: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(declared):
        yield from (("." + name, row) for name, row in beyond_bounds(declared))  # type: ignore[arg-type]
        return
    if declared is bool:
        yield " 0", 0
        return
    kind, bound = _bounded(declared)
    if kind is int:
        yield from ((f" {bad}", bad) for bad in (bound.low - 1, bound.high + 1) if bad <= _UNSIGNED_MAX)
        return
    yield from ((f" of {size}", _of_length(kind, size)) for size in (bound.low - 1, bound.high + 1) if size >= 0)
    if get_origin(kind) is tuple:
        yield from ((f"[0]{what}", [bad]) for what, bad in _outside(get_args(kind)[0]))
