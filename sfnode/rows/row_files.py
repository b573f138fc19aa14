"""Read rows out of the files that people have: JSON lines (SPEC 5.5), a JSON list, CSV, TSV, Parquet.

A run's public data are JSON lines, which every node reads in the same way; `public_rows` makes them of other files.
What cannot be read is refused with the name of its format and what to do. No torch here.
"""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError, first_line
from sfnode.extras import how_to_add
from sfnode.rows.answerable import check_answerable
from sfnode.rows.json_rows import Placed, Repeated, items_in, lines_in, wanted_rows
from sfnode.rows.row_templates import CHOICES_FIELD, LABEL_FIELD, WORD_FIELD, TaskTemplate, spelled_names

Rows = Path | str | Sequence[Mapping[str, object]]  # a file, or what its lines hold

BYTES_MAX = 1 << 36  # of a data file: hashed in minutes
_HEAD_BYTES = 4_096
_PARQUET = b"PAR1"
# How files begin that are no text -> what they are, and how people get at the rows in them
_REFUSED = (
    (b"\x1f\x8b", "packed with gzip: unpack it with `gunzip`"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd: unpack it with `unzstd`"),
    (b"BZh", "packed with bzip2: unpack it with `bunzip2`"),
    (b"\xfd7zXZ", "packed with xz: unpack it with `unxz`"),
    (b"\x04\x22\x4d\x18", "packed with lz4: unpack it with `unlz4`"),
    (b"7z\xbc\xaf\x27\x1c", "packed with 7-Zip: unpack it with `7z x`"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it"),
    (b"PK\x03\x04", "an Excel workbook or another zip file: save its table as CSV (UTF-8), or unpack it"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save its table as CSV (UTF-8)"),
    (b"ARROW1", "in Arrow's own format: save it as Parquet or JSON lines"),
    (b"FEA1", "in the Feather format: save it as Parquet or JSON lines"),
    (b"ORC", "in the ORC format: save it as Parquet or JSON lines"),
    (b"Obj\x01", "in the Avro format: save it as Parquet or JSON lines"),
    (b"\x89HDF", "an HDF5 file: save its table as CSV"),
    (b"\x93NUMPY", "an array of NumPy: write its rows as JSON lines or CSV"),
    (b"\x89PNG", "a picture: it has no rows; write them as JSON lines or CSV"),
    (b"SQLite format 3", "an SQLite database: export its table as CSV"),
    (b"GGUF", "a model in the format GGUF: name it as the model, and a file of rows as the data"),
    (b"$FL2", "a file of SPSS: save its table as CSV"),
    (b"<stata_dta>", "a file of Stata: save its table as CSV"),
    (b"<<<<<<< ", "a file with an unsettled conflict of Git: settle it first"),
    (b"%PDF", "a PDF document: it has no rows; write them as JSON lines or CSV"),
    (b"\x80", "a pickle of Python, which may run code: save its rows as JSON lines"),
)
_TAR = b"ustar"
_TAR_AT = 257
_EXCEL_LINE = re.compile(r"\Asep=.\r?\n")  # says what divides the columns, for Excel alone
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = "\t,;|"  # a tab first: a table with tabs may have commas in its texts


def rows_of(
    data: Rows, template: TaskTemplate, *, is_specified: bool = False, repeated: Repeated | None = None
) -> Iterator[Placed]:
    """Yield rows as SPEC 5.5 has them: labels that are words of the task or digits become numbers. OperatorError.

    Args:
        is_specified: take nothing from a file but what SPEC 5.5 says, because other nodes train on it.
        repeated: gets each key that an object of JSON has twice, by the row's place.
    """
    if isinstance(data, Path | str):
        placed = _decoded(Path(data), template, {} if repeated is None else repeated, is_specified=is_specified)
    else:
        is_specified, placed = False, ((f"row {number}", row) for number, row in enumerate(data, start=1))
    for where, row in placed:
        yield where, row if is_specified else template.numbered(row, where)


def checked_texts(path: Path, template: TaskTemplate, *, is_judged: bool = True) -> int:
    """Return the number of rows. OperatorError: a field is missing, or the rule that ``is_judged`` lets none pass."""
    count = 0
    for where, row in rows_of(path, template):
        count, texts = count + 1, template.texts(row, where)
        if is_judged:
            check_answerable(template.rule, texts, where)
    return count


def public_rows(path: Path, template: TaskTemplate) -> bytes | None:
    """Return the rows as JSON lines that every node can read; None where the file has this form. OperatorError."""
    with suppress(OperatorError):
        for where, row in rows_of(path, template, is_specified=True):
            template.texts(row, where)
        if template.counts_from_0:
            return None
    return "".join(lines_of(path, template)).encode()


def lines_of(path: Path, template: TaskTemplate) -> list[str]:
    """Return the rows as JSON lines with the fields that the templates need, and numbers for labels. OperatorError."""
    lines = []
    for where, row in rows_of(path, template):
        label = template.texts(row, where).label
        assert isinstance(row, dict), "else it has no texts"
        kept = {name: row[name] for name in template.names}
        if not template.counts_from_0:
            kept[WORD_FIELD] = template.words[label]
        lines.append(json.dumps(kept, ensure_ascii=False) + "\n")
    return lines


def _decoded(path: Path, template: TaskTemplate, repeated: Repeated, *, is_specified: bool) -> Iterator[Placed]:
    try:
        if (size := path.stat().st_size) > BYTES_MAX:
            raise OperatorError(f"the data file {path} has {size:,} bytes, and may have {BYTES_MAX:,} at most")
        data = path.read_bytes()
    except OSError as error:
        raise OperatorError(f"{path}: cannot be read: {error.strerror}") from None
    except MemoryError:
        raise OperatorError(f"{path}: {size:,} bytes do not fit into memory: give a part of it") from None
    if data.startswith(_PARQUET) and not is_specified:
        return parquet_rows(path, template.names)
    text = _text(data, path, is_specified=is_specified)
    if not text.strip():
        raise OperatorError(f"{path}: no examples: the file is empty; {wanted_rows(template)}")
    start = text.lstrip()[:1]
    if start == "[" and not is_specified:
        return items_in(text, path, template, repeated)
    if start in ("{", "[") or is_specified:
        return lines_in(text, path, template, None if is_specified else repeated)
    return _table(text, path, template)


def _text(data: bytes, path: Path, *, is_specified: bool) -> str:
    """Decode the file. OperatorError: it is no text, or in an encoding that does not say what it is."""
    is_text = data[:_HEAD_BYTES].isascii() and b"\0" not in data[:_HEAD_BYTES]  # a column may be called ORCID
    for beginning, what in _REFUSED:
        if data.startswith(beginning) and not (is_text and beginning.isalnum()):
            raise OperatorError(f"{path} is {what}")
    if data.startswith(_TAR, _TAR_AT) and b"\0" in data[:_TAR_AT]:  # texts may hold that word, too
        raise OperatorError(f"{path} is a tar archive: unpack it with `tar -xf`")
    encoding = next((name for mark, name in _ENCODINGS if data.startswith(mark)), "utf-8")
    if b"\0" in data[:_HEAD_BYTES] and encoding in ("utf-8", "utf-8-sig"):
        raise OperatorError(f"{path} holds zero bytes: it is no text in UTF-8. Save it as that, or its rows as CSV")
    try:
        return data.decode("utf-8" if is_specified else encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        advice = "Save the file as UTF-8: `iconv -f WINDOWS-1252 -t UTF-8`, with the encoding that it has"
        if error.reason == "unexpected end of data":
            advice = "The file is cut off within a character: fetch or make it again"
        raise OperatorError(f"{path}:{line}: cannot be read as UTF-8 text: {error.reason}. {advice}") from None


def _table(text: str, path: Path, template: TaskTemplate) -> Iterator[Placed]:
    if text.lstrip().startswith("<"):
        raise OperatorError(f"{path} is a web page or XML, perhaps from a site in place of the file: fetch it again")
    text = _EXCEL_LINE.sub("\n", text, count=1)
    csv.field_size_limit(sys.maxsize)  # of the whole process: a text may be as long as it likes
    line = (text.lstrip("\r\n").splitlines() or [""])[0]
    headers = {each: next(csv.reader([line], delimiter=each)) for each in _DELIMITERS}
    delimiter = max(headers, key=lambda each: len(headers[each]))  # what divides the line into most parts
    only = [name.strip() for name in headers[delimiter]]
    if len(only) == 1 and spelled_names(only, template.names, str(path))[0] not in template.names:
        (first, *more) = template.names
        lines = "" if more else f"; `jq -Rc '{{{first}: .}}'` makes such a row of each line"
        raise OperatorError(f"{path} is neither JSON nor a table with a header: {wanted_rows(template)}{lines}")
    return table_rows(text, delimiter, path, template.names)


def table_rows(text: str, delimiter: str, path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the rows of a table whose first line names its columns. OperatorError names the line that is wrong."""
    is_spaced = f'{delimiter} "' in text.lstrip().partition("\n")[0]  # else the quotes would belong to the texts
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=delimiter, strict=True, skipinitialspace=is_spaced)
    header: list[str] = []
    rows, begins = 0, 1
    try:
        for cells in reader:
            where, begins = f"{path}:{begins}", reader.line_num + 1  # a quoted text may have several lines
            if not any(cells):  # spreadsheets write empty rows as delimiters alone
                continue
            while header and len(cells) > len(header) and not cells[-1]:
                cells.pop()
            if not header:
                header = _checked([cell.strip() for cell in cells], wanted, where)
            elif len(cells) == len(header):
                rows += 1
                yield where, dict(zip(header, cells, strict=True))
            else:
                advice = f"put a text that holds {delimiter!r} in double quotes, and write a double quote in it twice"
                advice = advice if len(cells) > len(header) else "a column of this line is missing"
                what = f"columns here: {len(cells)}, in the first line: {len(header)}"
                raise OperatorError(f"{where}: {what}; {advice}")
    except csv.Error as error:
        raise OperatorError(
            f"{path}:{reader.line_num}: not a table with columns divided by {delimiter!r}: {error}. Write a double "
            "quote in a quoted text twice"
        ) from None
    if not rows:
        raise OperatorError(f"{path}: no examples: the table has a header alone")


def parquet_rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the rows of a Parquet file. OperatorError: pyarrow is missing, or the file is damaged."""
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise OperatorError(
            f"{path} is a Parquet file, and pyarrow is missing, which reads it: {how_to_add('data')}; or save it as CSV"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = _checked(list(file.schema_arrow.names), wanted, str(path))
            columns = [own for own, name in zip(file.schema_arrow.names, names, strict=True) if name in wanted]
            batches = file.iter_batches(columns=columns)
            number = 0
            for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
                plain = {name: each.decode() if isinstance(each, bytes) else each for name, each in row.items()}
                yield f"{path}: row {number}", plain
    except UnicodeDecodeError:
        raise OperatorError(f"{path}: a column holds bytes that are no text in UTF-8: save it as text") from None
    except (OSError, ValueError, arrow.ArrowException) as error:
        fault = first_line(error).rstrip(".")
        raise OperatorError(f"{path}: a damaged Parquet file: {fault}. Fetch or make it again") from None
    if not number:
        raise OperatorError(f"{path}: no examples: the table has no rows")


def _checked(header: list[str], wanted: Sequence[str], where: str) -> list[str]:
    """Return the names of the columns, spelled as wanted. OperatorError: a wanted one is missing, or there twice."""
    names = spelled_names(header, wanted, where)
    if missing := [name for name in wanted if name not in names]:
        found = ", ".join(map(repr, header))
        advice = "rename columns, or name yours in the template"
        if missing[0] in (LABEL_FIELD, CHOICES_FIELD):
            advice = f"the column that holds them has to be called {missing[0]!r}: rename it"
        raise OperatorError(
            f"{where}: no column {missing[0]!r}; the columns found are {found[:300]}, and the run's rows have "
            f"{', '.join(map(repr, wanted))}: {advice}. The first line names them"
        )
    return names
