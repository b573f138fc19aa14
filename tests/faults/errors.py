"""What an error holds, and what it follows from."""

from __future__ import annotations

from collections.abc import Iterator


def let_go(error: BaseException | None) -> None:
    """Let go of what the frames of an error hold: open sockets, which a process takes along as it ends."""
    for each in list(_together(error)):
        each.__traceback__ = None


def follows_from(error: BaseException, injected: Exception) -> bool:
    """Whether the injected error is this one, in it, or came before it."""
    parts = injected.exceptions if isinstance(injected, ExceptionGroup) else (injected,)
    return any(each is part for each in _together(error) for part in parts)


def first_leaf(error: BaseException | None) -> BaseException | None:
    """The first error in a group that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _together(error: BaseException | None) -> Iterator[BaseException]:
    """The error, those in it, and those that came before any of them, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inside = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [*inside, each.__cause__, each.__context__]
