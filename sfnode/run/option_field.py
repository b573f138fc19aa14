"""How an option on the command line fills a field of a dataclass; it is written in the field's place. No click."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

REPEAT = "Repeat the option to name several."
OPTION_KEY = "option"  # in a field's metadata
_Value = TypeVar("_Value")
Form = tuple[str, Callable[[str], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Describes the option of a field; its type is the field's, and `sfnode.cli.options` makes it.

    Attributes:
        text: its help. Where it says "[default: ...]", that stands for the field's default.
        name: the option, empty where it has the field's name.
        bounds: least and most of a whole number; None: no more than others.
        form: what the help calls a text, and its parser, which raises OperatorError; a `str` stays as it was typed.
    """

    text: str
    name: str
    bounds: tuple[int, int | None]
    form: Form | None


def given(
    default: _Value, text: str, *, name: str = "", bounds: tuple[int, int | None] = (1, None), form: Form | None = None
) -> _Value:
    """Return a dataclass's field that an `Option` fills."""
    option = Option(text=text, name=name, bounds=bounds, form=form)
    return field(default=default, metadata={OPTION_KEY: option})
