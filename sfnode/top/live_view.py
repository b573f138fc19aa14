"""Read the status of nodes again and again and show it: as a screen on a terminal, else as lines."""

from __future__ import annotations

import io
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.live import Live

from sfnode.reporter import Reporter
from sfnode.status import progress_line
from sfnode.storage import DataDirectory
from sfnode.top.node_view import NodeView, look
from sfnode.top.screen import draw

_LOOK_S: Final = 1.0
_LINE_S: Final = 5.0  # between looks where output scrolls
_QUIT: Final = "qQ\x03\x04"
SVG_COLUMNS: Final = 80
# The picture must not load a font from the internet.
_FONT_FROM_OUTSIDE: Final = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
SVG_FORMAT: Final = _FONT_FROM_OUTSIDE.sub("", CONSOLE_SVG_FORMAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewing:
    """Holds the options of the view.

    Attributes:
        is_once: show them once, then end.
        save_svg: pass one look to this as an SVG picture, then end.
    """

    is_once: bool = False
    save_svg: Callable[[bytes], None] | None = None


def show(data_dirs: Sequence[DataDirectory], viewing: Viewing) -> bool:
    """Show the nodes until the user quits, or once; return whether all reported at the last look."""
    views = [look(NodeView(data_dir=data_dir)) for data_dir in data_dirs]
    if viewing.save_svg is not None:
        viewing.save_svg(_picture(views))
    elif viewing.is_once or not _can_live():
        views = _print_lines(views, viewing.is_once)
    else:
        with suppress(KeyboardInterrupt):
            views = _run_live(views)
    return not any(view.trouble for view in views)


def _can_live() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _picture(views: Sequence[NodeView]) -> bytes:
    console = Console(record=True, width=SVG_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(draw(views))
    return console.export_svg(title="sfnode top", code_format=SVG_FORMAT).encode()


# --- lines


def _print_lines(views: list[NodeView], is_once: bool) -> list[NodeView]:
    """Print a line for a node each time its text has changed, until none reports; return the last views."""
    told: dict[DataDirectory, str] = {}
    reporter = Reporter()
    while True:
        for view in views:
            text = _line(view)
            if text != told.get(view.data_dir):
                reporter.event("node", f"{view.data_dir.path.name}: {text}")
            told[view.data_dir] = text
        if is_once or all(view.trouble for view in views):
            return views
        time.sleep(_LINE_S)
        views = [look(view) for view in views]


def _line(view: NodeView) -> str:
    if view.trouble or view.status is None:
        return view.trouble
    return "; ".join([progress_line(view.status), *view.warnings()])


# --- screen


def _run_live(views: list[NodeView]) -> list[NodeView]:
    console = Console()
    is_ascii = not (console.encoding or "").lower().startswith("utf")
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(views, lines=console.height, is_ascii=is_ascii), refresh=True)
            if _is_quit_pressed():
                return views
            views = [look(view) for view in views]


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one and do not echo them while the block lasts."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_quit_pressed() -> bool:
    """Wait for a key until the next look is due; return whether it was a key to quit, or the input ended."""
    ready, _, _ = select.select([sys.stdin], [], [], _LOOK_S)
    if not ready:
        return False
    typed = os.read(sys.stdin.fileno(), 64).decode("ascii", "ignore")
    return not typed or any(key in typed for key in _QUIT)
