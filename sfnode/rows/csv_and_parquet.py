"""Read tables: CSV and TSV with the standard library, Parquet with pyarrow, which the extra `data` brings."""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError, first_line
from sfnode.extras import how_to_add
from sfnode.rows.row_templates import CHOICES_FIELD, LABEL_FIELD

_DELIMITERS = "\t,;|"  # a tab first: a table with tabs may have commas in its texts


def header_of(text: str) -> tuple[list[str], str]:
    """Return the names of the columns and what divides them: what divides the first line into most parts."""
    line = text.lstrip("\r\n").splitlines()[0]
    found = [(next(csv.reader([line], delimiter=each)), each) for each in _DELIMITERS]
    names, delimiter = max(found, key=lambda each: len(each[0]))
    return [name.strip() for name in names], delimiter


def table_rows(text: str, delimiter: str, path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the rows of a table whose first line names its columns. OperatorError names the line that is wrong."""
    csv.field_size_limit(sys.maxsize)  # of the whole process: a text may be as long as it likes
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    try:
        for cells in filter(None, reader):
            where = f"{path}:{reader.line_num}"
            if not header:
                header = _checked([cell.strip() for cell in cells], wanted, where)
            elif len(cells) != len(header):
                raise OperatorError(f"{where}: {_odd_line(len(cells), len(header), delimiter)}")
            else:
                yield where, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise OperatorError(
            f"{path}:{reader.line_num}: not a table with columns divided by {delimiter!r}: {error}. Write a double "
            "quote in a quoted text twice"
        ) from None
    if reader.line_num <= 1:
        raise OperatorError(f"{path}: no examples: the table has a header alone")


def _odd_line(found: int, wanted: int, delimiter: str) -> str:
    """Return in words what is wrong with a line of another number of columns than the first has."""
    advice = "a column of this line is missing"
    if found > wanted:
        advice = f"put a text that holds {delimiter!r} in double quotes, and write a double quote in it twice"
    return f"columns here: {found}, in the first line: {wanted}; {advice}"


def parquet_rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the rows of a Parquet file. OperatorError: pyarrow is missing, or the file is damaged."""
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise OperatorError(
            f"{path} is a Parquet file, and pyarrow is missing, which reads it: {how_to_add('data')}; or save its rows "
            "as CSV"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = _checked(list(file.schema_arrow.names), wanted, str(path))
            batches = file.iter_batches(columns=[name for name in names if name in wanted])
            number = 0
            for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
                plain = {name: each.decode() if isinstance(each, bytes) else each for name, each in row.items()}
                yield f"{path}: row {number}", plain
    except UnicodeDecodeError:
        raise OperatorError(f"{path}: a column holds bytes that are no text in UTF-8: save it as text") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        fault = first_line(error).rstrip(".")
        raise OperatorError(f"{path}: a damaged Parquet file: {fault}. Fetch or make it again") from None
    if not number:
        raise OperatorError(f"{path}: no examples: the table has no rows")


def _checked(header: list[str], wanted: Sequence[str], where: str) -> list[str]:
    """Return the names of the columns. OperatorError: one that is wanted is missing, or there twice."""
    counts = Counter(header)
    if missing := [name for name in wanted if not counts[name]]:
        found = ", ".join(map(repr, header))
        advice = "rename columns, or name yours in the template"
        if missing[0] in (LABEL_FIELD, CHOICES_FIELD):
            advice = f"the column that holds them has to be called {missing[0]!r}: rename it"
        raise OperatorError(
            f"{where}: no column {missing[0]!r}; the columns found are {found[:300]}, and the run's rows have "
            f"{', '.join(map(repr, wanted))}: {advice}. The first line names them"
        )
    if twice := [name for name in wanted if counts[name] > 1]:
        raise OperatorError(f"{where}: two columns are called {twice[0]!r}: rename one of them")
    return header
