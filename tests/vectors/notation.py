"""The form of a vector file: cases, how values are written (``protocol/vectors/README.md``), and the page layout."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from protocol.errors import Ignore, Reject

Case: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]

_ROW_MIN = 8  # equal pieces in a row that are worth a repetition
_SHARED_MIN = 64  # shared with the base; less than that is chance
_COLUMNS = 150  # what fits stays on one line, so that a changed value is one changed line


def document(about: str, cases: Iterable[Case], **more: object) -> Document:
    """One file. Names of cases are unique within it."""
    listed = list(cases)
    names = [case["name"] for case in listed]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return {"about": about, **more, "cases": listed}


def case(name: str, function: str, given: dict[str, Any], expected: dict[str, Any]) -> Case:
    """One case: ``function`` of ``given`` is ``expected``."""
    return {"name": name, "function": function, "input": given, "expected": expected}


def repeat(data: object, times: int) -> dict[str, object]:
    """``data`` (bytes*) so many times end to end, for bytes too long to write out."""
    return {"repeat": data, "times": times}


def text(content: str) -> dict[str, str]:
    """Bytes that are readable as text."""
    return {"text": content}


def compact(data: bytes, *pieces: bytes, readable: bool = True) -> list[object]:
    """``data`` as a bytes* list in which a long row of one of the pieces is written once.

    ``readable``: bytes that are all readable are written as text, else all as hex.
    """
    for piece in pieces:
        start = data.find(piece * _ROW_MIN)
        if start >= 0:
            end = start + len(piece) * _ROW_MIN
            while data.startswith(piece, end):
                end += len(piece)
            row = repeat(_written(piece, readable), (end - start) // len(piece))
            before, after = (compact(part, *pieces, readable=readable) for part in (data[:start], data[end:]))
            return [*before, row, *after]
    return [_written(data, readable)] if data else []


def against(base: bytes, data: bytes, *pieces: bytes) -> list[object]:
    """``data`` as a bytes* list that names what its first line shares with ``base``: what is left is the change."""
    line, newline, rest = data.partition(b"\n")
    limit = min(len(base), len(line))
    head = next((i for i in range(limit) if base[i] != line[i]), limit)
    tail = next((i for i in range(limit - head) if base[-1 - i] != line[-1 - i]), limit - head)
    if head + tail < _SHARED_MIN:
        return compact(data, *pieces)
    ends = [(0, head)], [(len(base) - tail, len(base))]
    first, last = ([{"slice": list(part)} for part in parts if part[0] < part[1]] for parts in ends)
    return [*first, *compact(line[head : len(line) - tail], *pieces), *last, *compact(newline + rest, *pieces)]


def sliced(base: bytes, data: bytes) -> list[object]:
    """``data`` as a bytes* list that names every long part of it that stands in ``base``."""
    places = {base[place : place + _SHARED_MIN]: place for place in range(len(base) - _SHARED_MIN, -1, -1)}
    parts: list[object] = []
    start = place = 0
    while place < len(data):
        found = places.get(data[place : place + _SHARED_MIN])
        if found is None:
            place += 1
            continue
        end = place
        while end < len(data) and base[found + end - place : found + end - place + 1] == data[end : end + 1]:
            end += 1
        parts += [data[start:place].hex()] if start < place else []
        parts.append({"slice": [found, found + end - place]})
        start = place = end
    return [*parts, data[start:].hex()] if start < len(data) else parts


def _written(data: bytes, readable: bool) -> object:
    is_readable = readable and all(32 <= byte < 127 or byte == 10 for byte in data)
    return text(data.decode("ascii")) if is_readable else data.hex()


def as_bytes(value: Any, base: bytes = b"") -> bytes:
    """The bytes that a bytes* value of a vector stands for; ``base``: those of the file's member of that name."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    if isinstance(value, list):
        return b"".join(as_bytes(part, base) for part in value)
    if "text" in value:
        return str(value["text"]).encode("utf-8")
    if "slice" in value:
        return base[slice(*value["slice"])]
    return as_bytes(value["repeat"]) * int(value["times"])


def signs_text(values: Iterable[int]) -> str:
    """``+`` and ``-`` for +1 and -1."""
    return "".join("+" if value > 0 else "-" for value in values)


def key_text(key: int) -> str:
    """A 64-bit key as 16 hex digits."""
    return f"{key:016x}"


def word_texts(words: Sequence[int]) -> list[str]:
    """32-bit words as 8 hex digits each."""
    return [f"{int(word):08x}" for word in words]


def float_text(value: float) -> str:
    """The big-endian bytes of a binary64."""
    return struct.pack(">d", value).hex()


def twelve_digits(values: Iterable[float]) -> list[float]:
    """Measured numbers as vectors hold them: the last bits of a logarithm depend on the processor."""
    return [float(f"{value:.12g}") for value in values]


def judged(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The verdict on what ``act`` does, with the members it returns when it is accepted."""
    try:
        members = act()
    except Reject as reject:
        return {"verdict": "REJECT", "reason": reject.reason.name}
    except Ignore as ignore:
        return {"verdict": "IGNORE", "reason": ignore.reason.name}
    return {"verdict": "ACCEPT", "reason": None, **members}


def render(value: object) -> str:
    """The file's text: what fits on a line stays on one, everything else is opened up."""
    return _rendered(value, 0) + "\n"


def _rendered(value: object, depth: int) -> str:
    compact = json.dumps(value, ensure_ascii=True)
    if len(compact) + 2 * depth <= _COLUMNS or not isinstance(value, (dict, list)):
        return compact
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {_rendered(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{outer}}}"
    if all(isinstance(item, int | str) for item in value):
        return _filled(value, inner, outer)
    return "[\n" + ",\n".join(f"{inner}{_rendered(item, depth + 1)}" for item in value) + f"\n{outer}]"


def _filled(items: list[object], inner: str, outer: str) -> str:
    """A long list of short values as lines of several."""
    lines, line = [], inner
    for index, item in enumerate(items):
        written = json.dumps(item) + ("," if index < len(items) - 1 else "")
        if line != inner and len(line) + 1 + len(written) > _COLUMNS:
            lines.append(line)
            line = inner
        line += written if line == inner else " " + written
    return "[\n" + "\n".join([*lines, line]) + f"\n{outer}]"
