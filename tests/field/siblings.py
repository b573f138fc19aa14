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
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
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


def _tarred(name: str, data: bytes) -> bytes:
    packed, info = io.BytesIO(), tarfile.TarInfo(name)
    info.size = len(data)
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(info, io.BytesIO(data))
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
        _of("excel_sep_line.csv", "sep=;\n" + _table(";"), 12),
        _of("index_of_pandas.csv", ",sentence,label\n0,fine,1\n1,dull,0\n", 2),
        _of("no_last_line_end.csv", _table().rstrip("\n"), 12),
        _of("label_exponent.jsonl", jsonl.replace(": 1}", ": 1e0}").replace(": 0}", ": 0e0}"), 12),
        _of("same_key_twice.jsonl", '{"sentence": "a", "sentence": "fine", "label": 0, "label": 1}\n', 1),
        _of("escaped_controls.jsonl", '{"sentence": "fi\\u0001\\u001b[31mne\\u0000\\u2028", "label": 1}\n', 1),
        _of("empty_texts.jsonl", '{"sentence": "", "label": 1}\n{"sentence": " ", "label": 0}\n', 2),
        _of("very_long.jsonl", json.dumps({"sentence": "word " * 100_000, "label": 1}), 1),
        _of("from_other_end.jsonl", "\ufeff" + jsonl, 12, "utf-16-be"),
        _of("four_bytes_each.jsonl", jsonl, 12, "utf-32"),
        _of("quoted.csv", 'sentence,label\n"dull, and ""long""\nfor me",0\n"fine",1\n', 2),
        _of("more_columns.csv", "id,label,sentence,split\n" + "7,1,fine,train\n" * 9, 9),
        _of("spaces_in_header.csv", table.replace("sentence,label", "sentence , label"), 12),
        _of("rows_of_commas.csv", "sentence,label\nfine,1\n,\n,\n", 1),
        _of("comma_after_each_row.csv", "sentence,label\nfine,1,\ndull,0,\n", 2),
        _of("space_before_quotes.csv", '"sentence", "label"\n"fine, I say", "1"\n', 1),
        _of("label_excel_decimal.csv", "sentence;label\nfine;1,0\ndull;0,0\n", 2),
        _of("label_words.csv", table.replace(",0\n", ",bad\n").replace(",1\n", ",Good\n"), 12),
        _of("label_words.jsonl", _lines(_labelled("good", " bad", "BAD")), 3),
        _of("label_digits.jsonl", _lines(_labelled("0", "1", " 1 ")), 3),
        _of("label_floats.jsonl", _lines(_labelled(0.0, 1.0)), 2),
        _of("label_mixed.jsonl", _lines(_labelled(0, "good", "1", 1.0)), 4),
        _of("one_row.jsonl", _lines(ROWS[:1]), 1),
        _of(
            "other_letters.jsonl", json.dumps({"sentence": "fílm 🎬 שלום \u2028 é", "label": 1}, ensure_ascii=False), 1
        ),
        _of("whole_label_of_pandas.csv", "sentence,label\nfine,1.0\ndull,0.0\n", 2),
        _of("quotes_within.tsv", 'sentence\tlabel\nhe said "fine\t1\n5" of "dull"\t0\n', 2),
        _of("nan_beside.jsonl", '{"sentence": "a", "label": 1, "score": NaN}\n', 1),
        _of("zero_width.jsonl", '{"sentence": "a\u200bb\u200d\ufeff\u202eabc", "label": 1}\n', 1),
        _of("header_quoted.csv", '"sentence","label"\n"fine","1"\n', 1),
        _of("line_ends_mixed.csv", "sentence,label\r\nfine,1\ndull,0\r", 2),
        _of("many_columns.csv", "c," * 3000 + "sentence,label\n" + "x," * 3000 + "fine,1\n", 1),
        _of("very_long.csv", "sentence,label\n" + "word " * 100_000 + ",1\n", 1),
        Sibling(
            name="rows.parquet", data=_PARQUET, expected=12 if find_spec("pyarrow") else "-m pip install 'sfnode[data]'"
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
        "rows.lz4": (b"\x04\x22\x4d\x18" + bytes(20), "unlz4"),
        "rows.sav": (b"$FL2@(#) SPSS" + bytes(20), "a file of SPSS: save its table as CSV"),
        "rows.dta": (b"<stata_dta><header>" + bytes(20), "a file of Stata"),
        "model.gguf": (b"GGUF\x03\0\0\0", "a model in the format GGUF"),
        "conflict.jsonl": (
            b"<<<<<<< HEAD\n" + jsonl + b"=======\n" + jsonl + b">>>>>>> x\n",
            "conflict of Git",
        ),
        "cut_in_a_letter.jsonl": (
            jsonl + "é".encode()[:1],
            "data. The file is cut off within a character",
        ),
        "rows.7z": (b"7z\xbc\xaf\x27\x1c" + bytes(26), "7z x"),
        "rows.rar": (b"Rar!\x1a\x07\x01\0", "a RAR archive"),
        "rows.orc": (b"ORC" + bytes(60), "the ORC format"),
        "rows.avro": (b"Obj\x01\x04\x16avro.schema", "the Avro format"),
        "rows.feather": (b"FEA1" + bytes(60), "the Feather format"),
        "rows.h5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        "rows.npy": (b"\x93NUMPY\x01\0v\0", "an array of NumPy"),
        "table.png": (b"\x89PNG\r\n\x1a\n", "a picture"),
        "rows.tar": (_tarred("rows.jsonl", jsonl), "a tar archive: unpack it with `tar -xf`"),
        "shift_jis.csv": ("sentence,label\n映画,1\n".encode("shift-jis"), ":2: cannot be read as UTF-8"),
        "access_denied.xml": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "web page or XML"),
        "joined.jsonl": (jsonl + b"\xef\xbb\xbf" + jsonl, ":13: not JSON: a byte order mark within the file"),
        "empty.jsonl": (b"", "the file is empty"),
        "white_space.jsonl": (b"\n \r\n\t\n", "the file is empty"),
    }
    return [Sibling(name=name, data=data, expected=expected) for name, (data, expected) in made.items()]


def _refused_labels() -> list[Sibling]:
    return [
        _of("labels_from_one.jsonl", _lines(_labelled(1, 2)), ":2: label 2 is not a whole number of 0 ... 1"),
        _of("label_called_otherwise.csv", "sentence,sentiment\nfine,1\n", "has to be called 'label': rename it"),
        _of("label_in_capitals.jsonl", '{"sentence": "a", "Label": 1}\n', "rename 'Label' to 'label'"),
        _of("label_of_no_word.csv", "sentence,label\nfine,positive\n", "label 'positive' is not"),
        _of("label_missing_once.jsonl", _lines([*ROWS, {"sentence": "a"}]), ":13: field 'label' is missing"),
        _of("label_hidden.jsonl", _lines(_labelled(-1)), "label -1 is not"),
        _of("label_half.jsonl", _lines(_labelled(0.5)), "label 0.5 is not"),
        _of("label_in_a_list.jsonl", _lines(_labelled([1])), "label [1] is not"),
        _of("label_endless.jsonl", '{"sentence": "a", "label": 1e999}\n', "label inf is not"),
        _of(
            "label_of_401_digits.jsonl", '{"sentence": "a", "label": 1%s}\n' % ("0" * 400), "0... is not a whole number"
        ),
        _of("label_of_5001_digits.jsonl", '{"sentence": "a", "label": 1%s}\n' % ("0" * 5000), "too large a number"),
        _of("label_null.jsonl", _lines(_labelled(None)), "label null is not"),
        _of("label_true.jsonl", _lines(_labelled(True)), "label true is not"),
        _of("label_nan.jsonl", _lines(_labelled(float("nan"))), "label nan is not"),
        _of("label_false.csv", "sentence,label\nfine,False\n", "label 'False' is not"),
        _of("label_of_many.jsonl", _lines(_labelled([0, 1])), "label [0, 1] is not"),
        _of("label_within.jsonl", _lines(_labelled({"value": 1})), "label {'value': 1} is not"),
        _of("label_missing.csv", "sentence,label\nfine,\n", "label '' is not"),
    ]


def _refused_tables() -> list[Sibling]:
    return [
        _of("header_alone.csv", "sentence,label\n", "a header alone"),
        _of("header_and_an_empty_line.csv", "sentence,label\n\n", "a header alone"),
        _of("header_after_an_empty_line.csv", "\nsentence,label\n", "a header alone"),
        _of("header_alone_of_excel.csv", "sep=,\nsentence,label\n", "a header alone"),
        _of("header_and_an_empty_row.csv", "sentence,label\n,\n", "a header alone"),
        _of("no_header.csv", "fine,1\ndull,0\n", "the columns found are 'fine', '1'"),
        _of(
            "other_names.csv",
            _table().replace("sentence,", "text,"),
            "no column 'sentence'; the columns found are 'text', 'label'",
        ),
        _of("comma_unquoted.csv", "sentence,label\nfine, I say,1\n", ":2: columns here: 3, in the first line: 2; put"),
        _of("column_missing.csv", "sentence,label\nfine\n", ":2: columns here: 1, in the first line: 2; a column"),
        _of("two_columns_of_a_name.csv", "sentence,label,label\nfine,1,1\n", "two columns are called 'label'"),
        _of(
            "quote_never_closed.csv", 'sentence,label\n"fine,1\ndull,0\n', "Write a double quote in a quoted text twice"
        ),
        _of("empty_sheet_of_excel.csv", "sep=;\n", "a header alone"),
        _of("plain_text.txt", "It was fine.\nIt was dull.\n", "neither JSON nor a table"),
        _of("rows.yaml", "- sentence: fine\n  label: 1\n", "neither JSON nor a table"),
        _of(
            "names_in_capitals.csv",
            "Sentence,Label\nfine,1\n",
            "the columns found are 'Sentence'",
        ),
        _of("header_in_the_middle.csv", "sentence,label\nfine,1\nsentence,label\n", ":3: label 'label' is not"),
        _of("lines_in_quotes.jsonl", json.dumps(json.dumps(ROWS[0])) + "\n", "not a table"),
        _of("commented.jsonl", "// rows\n" + json.dumps(ROWS[0]), "neither JSON nor a table"),
        _of("rows.toml", "[[rows]]\nsentence = 'a'\nlabel = 1\n", "not JSON"),
    ]


def _refused_rows() -> list[Sibling]:
    first = json.dumps(ROWS[0])
    return [
        _of("of_python.jsonl", str(ROWS[0]) + "\n", ":1: not JSON"),
        _of("comma_at_the_end.json", f"[{first},]", "not JSON"),
        _of("cut_off.json", json.dumps(ROWS, indent=1)[:400], "not JSON"),
        _of("cut_off.jsonl", f"{first}\n{first[:20]}", ":2: not JSON"),
        _of("one_object.json", json.dumps({"data": ROWS}, indent=1), "one value over several lines"),
        _of(
            "objects_over_lines.jsonl",
            "\n".join(json.dumps(row, indent=1) for row in ROWS),
            ":1: one value over",
        ),
        _of(
            "in_a_member.json",
            json.dumps({"version": "1", "data": ROWS}),
            "give what is in 'data' alone",
        ),
        _of("by_index.json", json.dumps({str(at): row for at, row in enumerate(ROWS)}), "give what is in '0' alone"),
        _of(
            "of_a_chat.jsonl",
            '{"messages": [{"role": "user", "content": "a"}]}\n',
            "found 'messages'",
        ),
        _of("null_in_a_line.jsonl", f"{first}\nnull\n", ":2: a JSON object with 'sentence', 'label' is expected"),
        _of("ends_in_ctrl_z.jsonl", f"{first}\n\x1a", ":2: not JSON: a comma too many"),
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
        _of("number_for_text.jsonl", '{"sentence": 7, "label": 1}\n', 1),
        _of("text_null.jsonl", '{"sentence": null, "label": 1}\n', "field 'sentence' is null, and not a text"),
        _of("text_nested.jsonl", '{"sentence": {"text": "a"}, "label": 1}\n', "is {'text': 'a'}, and not a text"),
        _of("rows_nested.jsonl", _lines([{"row": ROWS[0]}]), "field 'sentence' is missing; found 'row'"),
        _of("rows_of_splits.json", json.dumps({"train": ROWS}), "field 'sentence' is missing; found 'train'"),
        _of("error_of_a_site.json", '{"error": "Rate limit exceeded"}', "field 'sentence' is missing; found 'error'"),
        _of("control_character.jsonl", '{"sentence": "fi\x01ne", "label": 1}\n', "a control character"),
        _of("tab_in_text.jsonl", '{"sentence": "fi\tne", "label": 1}\n', "writes as \\t"),
        _of("commas_between.jsonl", _lines(ROWS, ",\n"), ":1: not JSON: more after the end of the object: a comma"),
        _of("objects_on_a_line.jsonl", _lines(ROWS, " "), "a second object, which needs a line of its own"),
        _of("half_a_character.jsonl", '{"sentence": "\\ud83d", "label": 1}\n', "surrogate"),
        _of("zero_bytes_in_text.jsonl", '{"sentence": "fi\0ne", "label": 1}\n', "zero bytes"),
        _of("deep.jsonl", "[" * 100_000, "nested too deeply"),
    ]


def references(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield names of data as people give them, what each is, and a part of what refuses it; "" where it works."""
    jsonl = _lines(ROWS)
    (folder / "données.jsonl").write_text(jsonl)
    (folder / "of parts").mkdir()
    for number in (1, 2):
        (folder / "of parts" / f"train-{number}.parquet").write_bytes(_PARQUET)
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nowhere")
    yield "letters beyond ASCII in a name", str(folder / "données.jsonl"), ""
    yield "a folder of parts", str(folder / "of parts"), "train-1.parquet (2 such files: put those to use together"
    yield "an empty folder", str(folder / "empty"), "is a folder: name a file of rows in it, such as"
    yield "a pipe", str(folder / "pipe"), "is no file, but a pipe or a device: save its rows in a file"
    yield "a device", "/dev/zero", "is no file, but a pipe or a device"
    yield "a loop of links", str(folder / "loop"), "is a link that leads to no file"
    yield "a link to nothing", str(folder / "gone"), "is a link that leads to no file"
    yield "a path of Windows", "C:\\Users\\me\\rows.jsonl", "within WSL, try /mnt/c/Users/me/rows.jsonl"
    yield "an address", "https://example.org/rows.csv", "is an address: fetch the file"
    yield "another home", "~/none.jsonl", "no data file ~/none.jsonl: give"
    yield "a pattern", str(folder / "*.jsonl"), "no data file"
    yield "a hyphen", "-", "no data file -"
    yield "nothing", "", "is a folder: name a file"
    yield "a name of 5,000 letters", "a" * 5_000, "aaa...aaa"


SIBLINGS: Final = (*_works(), *_refused_formats(), *_refused_labels(), *_refused_tables(), *_refused_rows())
