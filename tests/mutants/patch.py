"""Switching a bug on: the source of one function is edited and compiled anew, in memory, and put back at the end.

An edit reads like a line of a diff. Its old text must stand in the function exactly once, so that an edit which the
product has outgrown is an error and never a bug that was not there.
"""

from __future__ import annotations
import __future__

import functools
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

_PATCHED_PACKAGES = ("protocol", "sfnode", "tests")  # where a function may be known by its name
_FILE_NUMBERS = count()


class StaleEditError(Exception):
    """The text that the edit replaces is not in the function, or more than once: the product has changed."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the source of a function.

    Attributes:
        module: where it is defined, dotted.
        function: its name in there, ``Class.method`` for a method.
        old: text that stands exactly once in its source, which begins in the first column.
        new: what stands there instead.
    """

    module: str
    function: str
    old: str
    new: str


@contextmanager
def switched_on(edits: tuple[Edit, ...]) -> Iterator[None]:
    """All edits hold while this lasts. StaleEditError when one does not fit."""
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(_edited(edit))
        yield


@contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    module = import_module(edit.module)
    class_name, _, name = edit.function.rpartition(".")
    owner = getattr(module, class_name) if class_name else module
    original = inspect.getattr_static(owner, name)
    changed = _compiled(edit, original, module.__dict__, owner)
    places = [owner] if class_name else _places(name, original)
    for place in places:
        setattr(place, name, changed)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, original)


def _places(name: str, original: object) -> list[Any]:
    """The modules that know the function: its own, and those that have imported it."""
    loaded = [module for key, module in sys.modules.items() if key.partition(".")[0] in _PATCHED_PACKAGES]
    return [module for module in loaded if vars(module).get(name) is original]


def _compiled(edit: Edit, original: object, module_names: dict[str, Any], owner: object) -> object:
    source = _source(original)
    if source.count(edit.old) != 1:
        raise StaleEditError(
            f"{edit.module}:{edit.function} has {source.count(edit.old)} times, not once: {edit.old!r}"
        )
    # Inside a function that has a name __class__, as inside a class: super() needs it.
    name = edit.function.rpartition(".")[2]
    body = textwrap.indent(source.replace(edit.old, edit.new), "    ")
    changed = f"def make(__class__):\n{body}\n    return {name}\n"
    file_name = f"<{edit.module}.{edit.function}, edited {next(_FILE_NUMBERS)}>"
    # Tracebacks show the edited lines, and a second edit of the same function finds the first.
    linecache.cache[file_name] = (len(changed), None, changed.splitlines(keepends=True), file_name)
    names: dict[str, Any] = {}
    code = compile(changed, file_name, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    exec(code, module_names, names)
    return names["make"](owner)


def _source(original: object) -> str:
    """The source from its decorators on, moved to the first column."""
    function: Callable[..., object] | None
    if isinstance(original, property):
        function = original.fget
    elif isinstance(original, functools.cached_property):
        function = original.func
    else:
        function = original  # type: ignore[assignment]
    assert function is not None
    return textwrap.dedent(inspect.getsource(function))
