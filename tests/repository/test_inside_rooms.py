"""The figures of what is inside the rooms get no worse."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pytest

from tests.repository.inside_rooms import Inside, measure

# Figure -> what it may be at most. Lower them when the code gets better; raise one only with a reason in the commit.
AT_MOST: Final = {
    "lines": 43_306,  # right answers that rows name, odd ones as well; slips in rows; one end at a signal, early too
    "exported_names": 451,  # `Life`: commands and the Python API end nodes alike; `row_slips`, for two files of rows
    "init_lines": 511,  # Basis; five of them for each face that imports late, so that commands start at once
    "import_share": 7.99,  # four import lines more, for files split at what people look for, of 115 lines fewer
    "small_helpers_per_kloc": 0.3,
    "dataclasses_per_kloc": 5.94,  # as many as before, on fewer lines
    "dialect_lines_per_kloc": 1.1,
    "data_directory_functions": 4,
    "names_with_two_meanings": 0,
    "commands_elsewhere": 0,
    "longest_class_lines": 200,
}
# Figure -> what to do where it is too high.
CURES: Final = {
    "lines": "shorten",
    "exported_names": "take names that no other room uses out of __init__.py",
    "init_lines": "shorten an __init__.py",
    "import_share": "import fewer names, or join two files",
    "small_helpers_per_kloc": "write the small private function where it is called",
    "dataclasses_per_kloc": "do without the new dataclass",
    "dialect_lines_per_kloc": "use other words than those of DIALECT in inside_rooms.py",
    "data_directory_functions": "take a `DataDirectory`; in sfnode/storage, every path called `folder` counts as one",
    "names_with_two_meanings": "rename a function",
    "commands_elsewhere": "give the file the name of its command",
    "longest_class_lines": "cut the class that `python -m tests.repository.inside_rooms` names, at another idea",
}


@pytest.fixture(scope="module")
def inside() -> Inside:
    """The figures of this tree."""
    return measure()


@pytest.mark.parametrize("name", AT_MOST)
def test_inside_rooms__figure__is_no_worse_than_it_was(inside: Inside, name: str) -> None:
    found = getattr(inside, name)
    assert _count(found) <= AT_MOST[name], advice(name, found)


def _count(found: float | Collection[str]) -> float:
    return found if isinstance(found, int | float) else len(found)


def advice(name: str, found: float | Collection[str]) -> str:
    """What to do about a figure that is too high, with the cases of those that count cases."""
    count, cases = _count(found), "" if isinstance(found, int | float) else f" ({', '.join(found)})"
    return (
        f"{count:,} {name.replace('_', ' ')}, {count - AT_MOST[name]:,.4g} more than allowed{cases}: {CURES[name]}, or "
        f"raise AT_MOST[{name!r}] here and say why in the commit (docs/decisions/0038-as-many-lines-as-features.md)"
    )


def test_advice__figure_is_too_high__says_by_how_much_which_cases_and_what_to_do() -> None:
    text = advice("lines", AT_MOST["lines"] + 6)
    assert text.startswith(
        f"{AT_MOST['lines'] + 6:,} lines, 6 more than allowed: shorten, or raise AT_MOST['lines'] here"
    )
    text = advice("commands_elsewhere", ("sfnode/cli/a.py: b",))
    assert text.startswith("1 commands elsewhere, 1 more than allowed (sfnode/cli/a.py: b): give the file the name of")
    assert CURES.keys() == AT_MOST.keys()
