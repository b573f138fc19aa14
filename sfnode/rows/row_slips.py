"""Look at the rows of a new run before it is made: some may be slips, such as a row that is there twice."""

from pathlib import Path

from sfnode.rows.answerable import check_answerable
from sfnode.rows.row_files import rows_of
from sfnode.rows.row_templates import RowTexts, TaskTemplate


def looked_at(path: Path, template: TaskTemplate) -> tuple[list[tuple[str, RowTexts]], list[str]]:
    """Return the rows of a run with a rule, each with its place, and warnings of slips. OperatorError: one is wrong."""
    placed, repeated, first, count = list[tuple[str, RowTexts]](), dict[str, str](), dict[int, str](), 0
    same, empty = list[str](), list[str]()
    for where, row in rows_of(path, template, repeated=repeated):
        count, texts = count + 1, template.texts(row, where)
        check_answerable(template.rule, texts, where)
        placed += [(where, texts)] if template.rule else []
        if (earlier := first.setdefault(hash(texts), where)) != where:
            same.append(f"{where}, as {earlier}")
        if name := template.empty_field(row):
            empty.append(f"{where}, {name!r}")
    twice = [f"{where}, {key!r}" for where, key in repeated.items()]
    texts_of = (
        (same, "are the same as an earlier one ({}) and count again: leave them out if that is a slip"),
        (empty, "have an empty text ({}): complete these rows, or leave them out"),
        (twice, "have a key twice ({}), whose last value counts: leave one out"),
    )
    return placed, [
        f"{len(found)} of {count} rows {what.format(found[0] + (len(found) > 1) * ', and others')}"
        for found, what in texts_of
        if found
    ]
