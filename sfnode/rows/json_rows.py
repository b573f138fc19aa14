"""Read rows in JSON: a line each (SPEC 5.5), or a list. Keys that an object has twice are noted."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError
from protocol.run import bounded_json
from sfnode.rows.row_templates import TaskTemplate

Placed = tuple[str, object]  # where a row stands, for messages, and its decoded value
Repeated = dict[str, str]  # a key that an object has twice, by the place of its row

_KNOWN = {  # what the decoder says -> what people can act on
    "Invalid control character at": "a control character, which a text in JSON writes as \\t, \\n or \\u0001,",
    "Unexpected UTF-8 BOM (decode using utf-8-sig)": "a byte order mark within the file, as where files were joined,",
    "Unterminated string starting at": "a text without its closing quote, which begins",
    "Expecting value": "a comma too many, or something that is no value of JSON,",
    "Extra data": "more after the end of the object: a comma, or a second object, which needs a line of its own,",
}


def lines_in(text: str, path: Path, template: TaskTemplate, repeated: Repeated | None) -> Iterator[Placed]:
    """Yield the rows of JSON lines; ``repeated``: None: as SPEC 5.5 reads them. OperatorError names a wrong line."""
    twice: dict[int, str] = {}
    parse = bounded_json.bounded_value if repeated is None else _noting(twice)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip(bounded_json.WHITE):
            continue
        try:
            row = parse(line)
        except (ValueError, RecursionError) as error:
            why = f"not JSON: {_why(error)}"
            with suppress(ValueError, RecursionError):
                _, end = json.JSONDecoder().raw_decode("\n".join([line.lstrip(), *lines[number:]]))
                why = "one value over several lines, which `jq -c .` puts on one" if end > len(line) else why
            raise OperatorError(f"{path}:{number}: {why}; {wanted_rows(template)}") from None
        if repeated is not None and id(row) in twice:
            repeated[f"{path}:{number}"] = twice[id(row)]
        twice.clear()
        yield f"{path}:{number}", row


def items_in(text: str, path: Path, template: TaskTemplate, repeated: Repeated) -> Iterator[Placed]:
    """Yield the rows of a list in JSON. OperatorError."""
    twice: dict[int, str] = {}
    try:
        items = _noting(twice)(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise OperatorError(f"{path}:{line}: not JSON: {_why(error)}; {wanted_rows(template)}") from None
    if not items:
        raise OperatorError(f"{path}: no examples: the list is empty; {wanted_rows(template)}")
    for number, item in enumerate(items, start=1):
        if id(item) in twice:
            repeated[f"{path}: item {number}"] = twice[id(item)]
        yield f"{path}: item {number}", item


def _noting(twice: dict[int, str]) -> Callable[[str], Any]:
    """Return a parser of JSON that notes a key which an object has twice, by the object's id."""

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        row = dict(pairs)
        if len(row) < len(pairs):
            ((twice[id(row)], _),) = Counter(name for name, _ in pairs).most_common(1)
        return row

    return partial(json.loads, object_pairs_hook=members)


def _why(error: Exception) -> str:
    """Return the decoder's words without its own number of the line, which counts from the beginning of a row."""
    if isinstance(error, json.JSONDecodeError):
        return f"{_KNOWN.get(error.msg, error.msg)} at column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "NaN, Infinity or too large a number"


def wanted_rows(template: TaskTemplate) -> str:
    """Return what to give in place of a file that has no rows."""
    return f"give one JSON object per line, such as {template.example}, or a CSV or TSV whose first line names columns"
