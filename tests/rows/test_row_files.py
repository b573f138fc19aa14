"""Files of rows: what each kind gives, or the sentence that refuses it; what public data become; labels as words."""

from __future__ import annotations

import csv
import json
import tracemalloc
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import OperatorError
from sfnode.rows import TaskTemplate, row_files
from sfnode.run.builtin_tasks import TaskTexts
from sfnode.storage import example_files
from tests.field.siblings import ROWS, SIBLINGS, Sibling, references
from tests.support.task_specs import CHOICE, task_spec

TEXTS = TaskTexts(template="{sentence} It was", label_words=(" bad", " good"))
TEMPLATE = TEXTS.row_template


@pytest.mark.parametrize("sibling", SIBLINGS, ids=lambda sibling: sibling.name)
def test_rows__file_as_people_have_it__are_read_or_refused_in_words(sibling: Sibling, tmp_path: Path) -> None:
    path = tmp_path / sibling.name
    path.write_bytes(sibling.data)
    if isinstance(sibling.expected, int):
        assert row_files.checked_texts(path, TEMPLATE) == sibling.expected
        return
    with pytest.raises(OperatorError) as refused:
        row_files.checked_texts(path, TEMPLATE)
    assert str(path) in str(refused.value) and sibling.expected in str(refused.value)


def test_locate__data_as_people_name_them__are_found_or_refused_in_words(tmp_path: Path) -> None:
    for what, data, said in references(tmp_path):
        if not said:
            assert example_files.locate(data).is_file(), what
            continue
        with pytest.raises(OperatorError) as refused:
            example_files.locate(data)
        assert said in str(refused.value) and len(str(refused.value)) < 500, what


def test_rows__labels_in_every_form__are_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sentence,label\na,good\nb, Bad \nc,1\nd,0.0\n")
    assert [row for _, row in row_files.rows_of(path, TEMPLATE)] == [
        {"sentence": text, "label": label} for text, label in (("a", 1), ("b", 0), ("c", 1), ("d", 0))
    ]


def test_rows__labels_that_differ_in_case_or_are_digits__are_their_numbers_or_it_is_said_how(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("sentence,label\na,US\nb,us\nc,5\n")
    texts = TaskTexts(template="{sentence} It was", label_words=(" US", " us", " 5"))
    assert [row["label"] for _, row in row_files.rows_of(path, texts.row_template)] == [0, 1, 2]  # type: ignore[index]
    path.write_text('{"sentence": "a", "label": 5}\n')
    assert [row["label"] for _, row in row_files.rows_of(path, texts.row_template)] == [2]  # type: ignore[index]


def test_rows__labels_that_look_like_a_word_but_have_other_characters__are_its_number(tmp_path: Path) -> None:
    """A fault once: 'négatif', in two characters for its é, was not one of the words 'négatif', 'positif'."""
    (path := tmp_path / "rows.csv").write_text(
        "sentence,label\na,ne\u0301gatif\nb,NE\u0301GATIF\nc,\u2764\ufe0f\n", "utf-8"
    )
    texts = TaskTexts(template="{sentence} Avis :", label_words=(" \u2764", " n\u00e9gatif"))
    assert [row["label"] for _, row in row_files.rows_of(path, texts.row_template)] == [1, 1, 0]  # type: ignore[index]


_NAMES = ("r\u00e9ponse", "re\u0301ponse")  # an accent with its letter, and as a character of its own


def parquet_of(folder: Path, text: str) -> Path:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    (name, value), (_, label) = json.loads(text).items()
    parquet.write_table(import_module("pyarrow").table({name: [value], "label": [label]}), folder / "rows.parquet")
    return folder / "rows.parquet"


@pytest.mark.parametrize("form", ["{0},label\nfine,1\n", '{{"{0}": "fine", "label": 1}}', "parquet"])
@pytest.mark.parametrize(("named", "found"), [_NAMES, _NAMES[::-1]])
def test_rows__accent_of_a_columns_name_is_a_character_of_its_own__is_the_same_name(
    form: str, named: str, found: str, tmp_path: Path
) -> None:
    """A fault once: no column 'réponse'; the columns found are 'réponse'."""
    template = TaskTexts(template=f"{{{named}}} Avis :", label_words=(" bad", " good")).row_template
    if form == "parquet":
        path = parquet_of(tmp_path, json.dumps({found: "fine", "label": 1}))
    else:
        (path := tmp_path / "rows").write_text(form.format(found), "utf-8")
    assert [row for _, row in row_files.rows_of(path, template)] == [{named: "fine", "label": 1}]
    public = json.loads(row_files.public_rows(path, template) or b"null")
    assert public == {named: "fine", "label": 1}, "other nodes read a name as it is"


def test_rows__only_column_has_an_accent_as_a_character_of_its_own__is_a_table(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text(f"{_NAMES[1]}\nfine\n", "utf-8")
    template = TaskTexts(template="", completion=f"{{{_NAMES[0]}}}").row_template
    assert [row for _, row in row_files.rows_of(path, template)] == [{_NAMES[0]: "fine"}]


@pytest.mark.parametrize("form", ["{0},{1},label\na,b,1\n", '{{"{0}": "a", "{1}": "b", "label": 1}}'])
def test_rows__two_columns_differ_in_how_an_accent_is_written__are_refused(form: str, tmp_path: Path) -> None:
    """Which of them a template means, nobody can see; it took the one that is written as in the template."""
    (path := tmp_path / "rows").write_text(form.format(*_NAMES), "utf-8")
    template = TaskTexts(template=f"{{{_NAMES[0]}}} Avis :", label_words=(" bad", " good")).row_template
    with pytest.raises(OperatorError, match=r"rows:1: two columns are called 'r.* \(an accent has two forms\): rename"):
        row_files.checked_texts(path, template)
    both = TaskTexts(template="{%s} {%s} :" % _NAMES, label_words=(" bad", " good")).row_template  # noqa: UP031
    assert row_files.checked_texts(path, both) == 1, "a template that names both says which is which"


@pytest.mark.parametrize("name", ["text", _NAMES[0]])
def test_rows__two_columns_of_the_very_same_name__are_not_said_to_differ_in_an_accent(
    name: str, tmp_path: Path
) -> None:
    """Of two columns `text` it said that an accent has two forms."""
    (path := tmp_path / "rows.csv").write_text(f"{name},{name},label\na,b,1\n", "utf-8")
    template = TaskTexts(template=f"{{{name}}} Good?", label_words=(" bad", " good")).row_template
    with pytest.raises(OperatorError, match=rf"two columns are called '{name}': rename one"):
        row_files.checked_texts(path, template)


@pytest.mark.parametrize("numbers", ["1 2 4", "1.0 2.0 4.0", '"1" "2" "4"'])
def test_rows__label_words_that_are_numbers__are_meant_by_numbers_in_every_file_of_people(
    numbers: str, tmp_path: Path
) -> None:
    """Stars as numbers in JSON counted from 0: a file without a 5 trained one star off, and nothing said so."""
    stars = TaskTexts(template="{sentence} Stars:", label_words=(" 1", " 2", " 3", " 4", " 5")).row_template
    (path := tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"sentence": "a", "label": {each}}}\n' for each in numbers.split())
    )
    read = [stars.texts(row, where).label for where, row in row_files.rows_of(path, stars)]
    (public := tmp_path / "public.jsonl").write_bytes(row_files.public_rows(path, stars) or b"")
    specified = [row["label"] for _, row in row_files.rows_of(public, stars, is_specified=True)]  # type: ignore[index]
    again = [row["label"] for _, row in row_files.rows_of(public, stars)]  # type: ignore[index]
    assert read == specified == again == [0, 1, 3], "by every reader, also a part of the public rows as own rows"


def test_rows__signs__are_part_of_a_number(tmp_path: Path) -> None:
    signed = TaskTexts(template="{sentence} Up:", label_words=(" +1", " -1")).row_template
    (path := tmp_path / "rows.jsonl").write_text('{"sentence": "a", "label": 1}\n{"sentence": "a", "label": -1}\n')
    assert [signed.texts(row, where).label for where, row in row_files.rows_of(path, signed)] == [0, 1]


@pytest.mark.parametrize(("words", "label"), [((" 1", " 2", " 3+"), "0"), ((" 1", " 2", " 3+"), '"3"'), ((" 2",), "1")])
def test_rows__number_that_is_no_word_where_words_are_numbers__is_refused(
    words: tuple[str, ...], label: str, tmp_path: Path
) -> None:
    template = TaskTexts(template="{sentence} Stars:", label_words=(*words, " 7")).row_template
    (path := tmp_path / "rows.jsonl").write_text(f'{{"sentence": "a", "label": {label}}}\n')
    with pytest.raises(OperatorError, match="is not one of the words, and does not count them from 0, since some are"):
        row_files.public_rows(path, template)


def test_rows__label_words_with_fractions__are_not_counted(tmp_path: Path) -> None:
    """A row of one star trained "1.5"."""
    stars = TaskTexts(template="{sentence} Stars:", label_words=(" 0.5", " 1.5")).row_template
    (path := tmp_path / "rows.jsonl").write_text('{"sentence": "a", "label": 1.5}\n{"sentence": "a", "label": 1}\n')
    (_, first), (_, second) = row_files.rows_of(path, stars)
    assert stars.texts(first, "here").label == 1
    with pytest.raises(OperatorError, match="label '1' is not one of the words"):
        stars.texts(second, "here")


def test_rows__whole_number_in_a_texts_place__is_its_digits_as_in_a_table(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text('{"sentence": 7, "label": 1}\n')
    assert row_files.public_rows(path, TEMPLATE) == b'{"sentence": "7", "label": 1}\n'
    path.write_text('{"sentence": true, "label": 1}\n')
    with pytest.raises(OperatorError, match="field 'sentence' is true, and not a text"):
        row_files.checked_texts(path, TEMPLATE)


@pytest.mark.parametrize("value", ["null", "1.5", "true", "[1]", '"\\ud83d"', str(1 << 54)])
def test_rows__value_that_a_rule_cannot_compare__is_said_with_its_line_before_anything_starts(
    value: str, tmp_path: Path
) -> None:
    """It ended a node after some hundred rows, with a message that named no line."""
    rule = '{"check":{"exact":"{answer}"},"samples":2,"tokens":4}'
    template = TaskTexts(template="{prompt}", completion=rule, is_reward=True).row_template
    (path := tmp_path / "rows.jsonl").write_text(
        f'{{"prompt": "a", "answer": 7}}\n{{"prompt": "b", "answer": {value}}}\n'
    )
    with pytest.raises(OperatorError, match=r"rows\.jsonl:2: field 'answer' "):
        row_files.checked_texts(path, template)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{sentence:>10} x", "{sentence:>10} is not a field of the data"),
        ("{sentence!r} x", "{sentence!r} is not a field of the data"),
        ("{sentence}}", "single '}' encountered in format string; a brace itself is written twice"),
    ],
)
def test_template__more_than_a_name_in_braces__is_shown_as_it_was_typed(template: str, said: str) -> None:
    with pytest.raises(OperatorError) as refused:
        _ = TaskTexts(template=template, label_words=(" bad", " good")).row_template
    assert said in str(refused.value)


def test_rows__choices_in_a_table__are_a_list_and_the_label_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('premise,choices,label\nIt rained,"[""dry"", ""wet""]",wet\n')
    template = TaskTexts(template="{premise} so it was", completion=" {choice}").row_template
    ((where, row),) = row_files.rows_of(path, template)
    texts = template.texts(row, where)
    assert (where, texts.following, texts.label) == (f"{path}:2", (" dry", " wet"), 1)


def test_rows__letter_for_a_choice__is_its_number(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text('{"q": "a", "choices": ["dry", "wet"], "label": "B"}\n')
    template = TaskTexts(template="{q}", completion=" {choice}").row_template
    assert [template.texts(row, where).label for where, row in row_files.rows_of(path, template)] == [1]
    path.write_text('{"q": "a", "choices": ["dry", "wet"], "label": "C"}\n')
    with pytest.raises(OperatorError, match="label 'C' is not a whole number of 0"):
        row_files.checked_texts(path, template)


def test_public_rows__of_another_form__are_lines_that_every_node_reads(tmp_path: Path) -> None:
    table, lines = tmp_path / "rows.csv", tmp_path / "rows.jsonl"
    table.write_text("sentence,split,label\nfine,train,good\ndull,train,0\n", encoding="utf-8-sig")
    lines.write_bytes(row_files.public_rows(table, TEMPLATE) or b"")
    assert lines.read_text() == '{"sentence": "fine", "label": 1}\n{"sentence": "dull", "label": 0}\n'
    assert row_files.public_rows(lines, TEMPLATE) is None
    assert len([*row_files.rows_of(lines, TEMPLATE, is_specified=True)]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(ROWS), "a JSON object"),
        ("\ufeff" + json.dumps(ROWS[0]), "not JSON"),
        ('{"sentence": "fine", "label": "good"}', "label 'good'"),
        ("sentence,label\nfine,1\n", "not JSON"),
    ],
    ids=["list", "bom", "label_word", "csv"],
)
def test_public_rows__not_as_specified__no_node_trains_on_them(text: str, said: str, tmp_path: Path) -> None:
    """SPEC 5.5: another node could not use them, and would measure other rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OperatorError, match=said):
        [TEMPLATE.texts(row, where) for where, row in row_files.rows_of(path, TEMPLATE, is_specified=True)]


def test_rows__file_longer_than_any_may_be__is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "rows.jsonl").open("wb") as file:
        file.truncate(row_files.BYTES_MAX + 1)  # takes no room on the disk
    with pytest.raises(OperatorError, match=r"rows\.jsonl has 68,719,476,737 bytes, and may have 68,719,476,736"):
        row_files.checked_texts(tmp_path / "rows.jsonl", TEMPLATE)


def test_rows__file_does_not_fit_into_memory__is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(_path: Path) -> bytes:
        raise MemoryError

    (path := tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]))
    monkeypatch.setattr(Path, "read_bytes", out_of_memory)
    with pytest.raises(OperatorError, match=r"bytes do not fit into memory"):
        row_files.checked_texts(path, TEMPLATE)


def test_rows__first_column_begins_like_another_format__is_read_as_text(tmp_path: Path) -> None:
    """A fault once: a column called ORCID made a CSV file one "in the ORC format"."""
    path = tmp_path / "rows.csv"
    path.write_text("ORCID,sentence,label\n7,a fine film,1\n", "utf-8")
    ((_, row),) = row_files.rows_of(path, TEMPLATE)
    assert row == {"ORCID": "7", "sentence": "a fine film", "label": 1}


def test_rows__word_of_a_tar_archive_where_that_has_it__is_read_as_text(tmp_path: Path) -> None:
    """A fault once: "mustard", with its second letter at byte 257, made a CSV file a tar archive."""
    path, begins = tmp_path / "rows.csv", "sentence,label\n"
    path.write_text(f"{begins}{'a' * (256 - len(begins))}mustard,1\n", "utf-8")
    assert [str(row).count("amustard") for _, row in row_files.rows_of(path, TEMPLATE)] == [1]


def test_rows__parquet_with_bytes_that_are_no_text__is_not_called_damaged(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"sentence": [b"caf\xe9"], "label": [1]}), path := tmp_path / "rows.parquet")
    with pytest.raises(OperatorError, match="holds bytes that are no text in UTF-8: save it as text"):
        [*row_files.rows_of(path, TEMPLATE)]


def test_rows__parquet_as_other_programs_write_it__has_texts_and_whole_numbers(tmp_path: Path) -> None:
    """Spark writes texts as bytes, a warehouse whole numbers as decimals. An empty table once named another file."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    labels = arrow.array([Decimal(1), Decimal(0)], arrow.decimal128(25, 0))
    parquet.write_table(arrow.table({"sentence": [b"fine", "caf\xe9".encode()], "label": labels}), path)
    rows = [row for _, row in row_files.rows_of(path, TEMPLATE)]
    assert rows == [{"sentence": "fine", "label": 1}, {"sentence": "caf\xe9", "label": 0}]
    parquet.write_table(arrow.table({"sentence": arrow.array([], "string"), "label": arrow.array([], "int8")}), path)
    with pytest.raises(OperatorError, match=r"rows\.parquet: no examples: the table has no rows"):
        row_files.public_rows(path, TEMPLATE)


@pytest.mark.parametrize("kind", ["template", "choices", "rule"])
def test_texts__long_field_that_a_stranger_names_a_thousand_times__is_refused_before_it_is_filled_in(kind: str) -> None:
    """A fault once: 100 kB of public data took a tokenizer or a rule gigabytes, and ended each joiner's worker."""
    rule = json.dumps({"check": {"exact": "{a}" * 1_330}, "samples": 2, "tokens": 16})
    template = TaskTemplate(
        {
            "template": task_spec({"template": "{a}" * 1_360, "label_words": [" no", " yes"]}),
            "choices": task_spec({**CHOICE, "template": "", "completion": "{a}" * 1_300 + "{choice}"}),
            "rule": task_spec({"kind": "reward", "template": "{q}", "completion": rule, "label_words": []}),
        }[kind]
    )
    row = {"a": "x" * 100_000, "q": "Why?", "choices": ["b", "c"], "label": 0}
    tracemalloc.start()
    with pytest.raises(OperatorError, match=r"^row 1: the row's texts have .* and may have 1,048,576: divide them"):
        template.texts(row, "row 1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_rows__parquet_with_a_wrong_byte_in_what_describes_it__is_called_damaged(tmp_path: Path) -> None:
    """A fault once: pyarrow has errors of its own, and some ended in a traceback."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"sentence": ["fine"], "label": [1]}), path := tmp_path / "rows.parquet")
    whole, refused = path.read_bytes(), []
    for place in range(len(whole) - 180, len(whole) - 120):
        path.write_bytes(whole[:place] + bytes([whole[place] + 1]) + whole[place + 1 :])
        try:
            assert len([*row_files.rows_of(path, TEMPLATE)]) == 1
        except OperatorError as error:
            refused.append(str(error))
    assert len(refused) > 10 and all(": a damaged Parquet file: " in said for said in refused)


def test_public_rows__with_a_word_that_json_has_not__are_made_anew_without_it(tmp_path: Path) -> None:
    """A fault once: they were published as they are, and a reader of JSON refuses the file."""
    (path := tmp_path / "rows.jsonl").write_text('{"sentence": "a", "label": 1, "score": NaN}\n')
    assert row_files.public_rows(path, TEMPLATE) == b'{"sentence": "a", "label": 1}\n'
    with pytest.raises(OperatorError, match=r"rows\.jsonl:1: not JSON: NaN, Infinity or too large a number"):
        [*row_files.rows_of(path, TEMPLATE, is_specified=True)]


def test_rows__book_on_one_line__is_refused_in_words(tmp_path: Path) -> None:
    """A fault once: Python's own bound of a cell, which a process has until it is raised, ended in a traceback."""
    csv.field_size_limit(131_072)
    (path := tmp_path / "book.txt").write_text("It was fine. " * 20_000)
    with pytest.raises(OperatorError, match="neither JSON nor a table"):
        [*row_files.rows_of(path, TEMPLATE)]


def test_checked_texts__label_with_a_comma__is_shown_apart_from_the_words(tmp_path: Path) -> None:
    """It read "label 'bad, good' is not ... one of the words 'bad, good'", which are two words."""
    (path := tmp_path / "rows.csv").write_text('sentence,label\nfoo,"bad, good"\n')
    with pytest.raises(OperatorError, match=r"label 'bad, good' is not .* words 'bad', 'good'$"):
        row_files.checked_texts(path, TEMPLATE)


def test_rows__record_of_several_lines__is_named_by_its_first(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text('sentence,label\n"a\nb",1\n,\n\n"c\nd",9\n')
    with pytest.raises(OperatorError, match=r"rows\.csv:6: label 9 is not"):
        row_files.checked_texts(path, TEMPLATE)
