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
        if (earlier := first.setdefault(hash(repr(texts)), where)) != where:
            same.append(f"{where}, as {earlier}")
        if name := template.empty_field(row):
            empty.append(f"{where}, {name!r}")
    twice = [f"{where}, {key!r}" for where, key in repeated.items()]
    slips = (
        ("that are the same as an earlier one", same, "They count again: leave them out if that is a slip"),
        ("with an empty text", empty, "Complete these, or leave them out, if that is a slip"),
        ("with a key twice", twice, "Its last value counts: leave one out"),
    )
    return placed, [
        f"rows {what}: {len(found)} of {count} ({found[0]}{', and others' if found[1:] else ''}). {advice}"
        for what, found, advice in slips
        if found
    ]
