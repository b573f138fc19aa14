"""How an option on the command line fills a field of a dataclass; it is written in the field's place. No click."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from protocol.errors import OperatorError

REPEAT = "Repeat the option to name several."
OPTION_KEY = "option"  # in a field's metadata
_TEXT_MAX = 4_096  # of a template in a manifest; tokenising a longer one takes minutes
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


def typed(text: str) -> str:
    """Return a text with a line break for each ``\\n``, as people type it in a shell; ``\\\\n`` stays ``\\n``.

    OperatorError: it is no text, longer than a manifest allows, or was typed in another encoding.
    """
    if not isinstance(text, str):
        raise OperatorError(f"{text!r}: give one text, such as ' no, yes' for label words")
    if len(text) > _TEXT_MAX:
        raise OperatorError(f"{text[:60]!r}...: {len(text):,} characters; a run's text may have at most {_TEXT_MAX:,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OperatorError(f"{text[:200]!r}: not UTF-8: let the terminal, or what calls sfnode, use UTF-8") from None
    return re.sub(r"\\(\\n|n)", lambda found: "\n" if found[1] == "n" else found[1], text)
