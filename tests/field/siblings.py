"""Files of rows as spreadsheets, pandas, shells and web sites write them, for the fields `sentence` and `label`.

Each says what is to come of it: a number of rows, or a part of the sentence that refuses it. They are siblings of the
inputs in the shared folder `field`, made here so that they are in every checkout.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

ROWS: Final = [
    {"sentence": f"film number {number} was {('dull', 'fine')[number % 2]}", "label": number % 2}
    for number in range(12)
]
# Twelve such rows as pyarrow writes them
_PARQUET: Final = base64.b64decode(
    "UEFSMRUAFYAFFc4BLBUYFQAVBhUGHAAAACi1L/1gQADtAgCkAwIAAAAYARYAAABmaWxtIG51bWJlciAwIHdhcyBkdWxsMWZpbmUyMzQ1Njc4OR"
    "cxFzEgd2FzIGZpbmUPAIAEYW0HOgOFgOXAwsAiYDmwMLDIVRSAcAESuC4amU8VABXMARVeLBUYFQAVBhUGHAAAACi1L/0gZjUBAMgCAAAAGAEA"
    "AQABAAEAAQABAAEAAAAAAAAABhAAMpaxjGUssWsEFQQZPDUAGAZzY2hlbWEVBAAVDCUCGAhzZW50ZW5jZSUATBwAAAAVBCUCGAVsYWJlbAAWGB"
    "kcGSwmABwVDBklBgAZGAhzZW50ZW5jZRUMFhgWqgUW+AEmCEkcFQAVABUCADwWlAQZBhkmABgAAAAmABwVBBklBgAZGAVsYWJlbBUMFhgW9AEW"
    "hgEmgAJJHBUAFQAVAgA8KQYZJgAYAAAAFp4HFhgmCBb+AgAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGSwcAAAcAAAA1QAAAF"
    "BBUjE="
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A file. ``expected``: its rows, or a part of what is said of it."""

    name: str
    data: bytes
    expected: int | str


def _lines(rows: list[dict[str, object]], end: str = "\n") -> str:
    return "".join(json.dumps(row) + end for row in rows)


def _table(delimiter: str = ",", rows: list[dict[str, object]] = ROWS) -> str:
    lines = [delimiter.join(rows[0]), *(delimiter.join(map(str, row.values())) for row in rows)]
    return "".join(line + "\n" for line in lines)


def _labelled(*labels: object) -> list[dict[str, object]]:
    return [{"sentence": "film", "label": label} for label in labels]


def _zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "<worksheet/>")
    return packed.getvalue()


def _of(name: str, text: str, expected: int | str, encoding: str = "utf-8") -> Sibling:
    return Sibling(name=name, data=text.encode(encoding), expected=expected)


def _works() -> list[Sibling]:
    jsonl, table = _lines(ROWS), _table()
    return [
        _of("crlf.jsonl", _lines(ROWS, "\r\n"), 12),
        _of("cr_alone.jsonl", _lines(ROWS, "\r"), 12),
        _of("from_powershell.jsonl", jsonl, 12, "utf-16"),
        _of("blank_lines.jsonl", "\n\n" + jsonl.replace("\n", "\n  \n"), 12),
        _of("on_one_line.json", json.dumps(ROWS), 12),
        _of("list_with_bom.json", json.dumps(ROWS, indent=1), 12, "utf-8-sig"),
        _of("named_txt.txt", jsonl, 12),
        _of("excel_utf8.csv", table, 12, "utf-8-sig"),
        _of("excel_unicode_text.txt", _table("\t"), 12, "utf-16"),
        _of("excel_in_europe.csv", _table(";"), 12),
        _of("tabs.tsv", _table("\t"), 12),
        _of("pipes.csv", _table("|"), 12),
        _of("quoted.csv", 'sentence,label\n"dull, and ""long""\nfor me",0\n"fine",1\n', 2),
        _of("more_columns.csv", "id,label,sentence,split\n" + "7,1,fine,train\n" * 9, 9),
        _of("spaces_in_header.csv", table.replace("sentence,label", "sentence , label"), 12),
        _of("label_words.csv", table.replace(",0\n", ",bad\n").replace(",1\n", ",Good\n"), 12),
        _of("label_words.jsonl", _lines(_labelled("good", " bad", "BAD")), 3),
        _of("label_digits.jsonl", _lines(_labelled("0", "1", " 1 ")), 3),
        _of("label_floats.jsonl", _lines(_labelled(0.0, 1.0)), 2),
        _of("label_mixed.jsonl", _lines(_labelled(0, "good", "1", 1.0)), 4),
        _of("one_row.jsonl", _lines(ROWS[:1]), 1),
        _of(
            "other_letters.jsonl", json.dumps({"sentence": "fílm 🎬 שלום \u2028 é", "label": 1}, ensure_ascii=False), 1
        ),
        _of("very_long.csv", "sentence,label\n" + "word " * 100_000 + ",1\n", 1),
        Sibling(
            name="rows.parquet", data=_PARQUET, expected=12 if find_spec("pyarrow") else "pip install 'sfnode[data]'"
        ),
    ]


def _refused_formats() -> list[Sibling]:
    jsonl = _lines(ROWS).encode()
    made: dict[str, tuple[bytes, str]] = {
        "rows.jsonl.gz": (gzip.compress(jsonl), "gunzip"),
        "rows.jsonl.bz2": (bz2.compress(jsonl), "bunzip2"),
        "rows.jsonl.xz": (lzma.compress(jsonl), "unxz"),
        "rows.jsonl.zst": (b"\x28\xb5\x2f\xfd\x24\x00", "unzstd"),
        "rows.zip": (_zipped("rows.jsonl"), "zip file"),
        "rows.xlsx": (_zipped("xl/worksheets/sheet1.xml"), "save its table as CSV"),
        "rows.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), "save its table as CSV"),
        "rows.arrow": (b"ARROW1\0\0", "Parquet or JSON lines"),
        "rows.sqlite": (b"SQLite format 3\0" + bytes(84), "export its table as CSV"),
        "rows.pkl": (pickle.dumps(ROWS), "a pickle"),
        "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
        "page.jsonl": (b"<!DOCTYPE html>\n<html><title>404</title></html>", "web page"),
        "torn.parquet": (_PARQUET[:-40], "damaged Parquet file" if find_spec("pyarrow") else "sfnode[data]"),
        "utf16_without_mark.jsonl": (jsonl.decode().encode("utf-16-le"), "zero bytes"),
        "latin1.csv": ("sentence,label\nfine,1\ncaf\xe9,0\n".encode("latin-1"), ":3: cannot be read as UTF-8"),
        "empty.jsonl": (b"", "the file is empty"),
        "white_space.jsonl": (b"\n \r\n\t\n", "the file is empty"),
    }
    return [Sibling(name=name, data=data, expected=expected) for name, (data, expected) in made.items()]


def _refused_rows() -> list[Sibling]:
    first = json.dumps(ROWS[0])
    return [
        _of("header_alone.csv", "sentence,label\n", "a header alone"),
        _of("no_header.csv", "fine,1\ndull,0\n", "the columns found are 'fine', '1'"),
        _of(
            "other_names.csv",
            _table().replace("sentence,", "text,"),
            "no column 'sentence'; the columns found are 'text', 'label'",
        ),
        _of("comma_unquoted.csv", "sentence,label\nfine, I say,1\n", ":2: 3 columns, and the first line has 2"),
        _of("two_columns_of_a_name.csv", "sentence,label,label\nfine,1,1\n", "two columns are called 'label'"),
        _of(
            "quote_never_closed.csv", 'sentence,label\n"fine,1\ndull,0\n', "Write a double quote in a quoted text twice"
        ),
        _of("plain_text.txt", "It was fine.\nIt was dull.\n", "neither JSON nor a table"),
        _of("rows.yaml", "- sentence: fine\n  label: 1\n", "neither JSON nor a table"),
        _of("of_python.jsonl", str(ROWS[0]) + "\n", ":1: not JSON"),
        _of("comma_at_the_end.json", f"[{first},]", "not JSON"),
        _of("cut_off.json", json.dumps(ROWS, indent=1)[:400], "not JSON"),
        _of("cut_off.jsonl", f"{first}\n{first[:20]}", ":2: not JSON"),
        _of("one_object.json", json.dumps({"data": ROWS}, indent=1), "one value over several lines"),
        _of(
            "of_columns.json",
            json.dumps({"sentence": ["a", "b"], "label": [0, 1]}),
            "field 'sentence' is ['a', 'b'], and not a text",
        ),
        _of("list_of_lists.json", json.dumps([["fine", 1]]), "a JSON object with 'sentence', 'label' is expected"),
        _of("list_without_rows.json", "[]", "the list is empty"),
        _of(
            "other_names.jsonl", '{"text": "fine", "target": 1}\n', "field 'sentence' is missing; found 'text, target'"
        ),
        _of("number_for_text.jsonl", '{"sentence": 7, "label": 1}\n', "field 'sentence' is 7, and not a text"),
        _of("labels_from_one.jsonl", _lines(_labelled(1, 2)), ":2: label 2 is not a number of 0 ... 1, counted from 0"),
        _of("label_of_no_word.csv", "sentence,label\nfine,positive\n", "label 'positive' is not"),
        _of("label_null.jsonl", _lines(_labelled(None)), "label None is not"),
        _of("label_true.jsonl", _lines(_labelled(True)), "label True is not"),
        _of("label_nan.jsonl", _lines(_labelled(float("nan"))), "label nan is not"),
        _of("label_missing.csv", "sentence,label\nfine,\n", "label '' is not"),
        _of("half_a_character.jsonl", '{"sentence": "\\ud83d", "label": 1}\n', "surrogate"),
        _of("zero_bytes_in_text.jsonl", '{"sentence": "fi\0ne", "label": 1}\n', "zero bytes"),
        _of("deep.jsonl", "[" * 100_000, "nested too deeply"),
    ]


SIBLINGS: Final = (*_works(), *_refused_formats(), *_refused_rows())
