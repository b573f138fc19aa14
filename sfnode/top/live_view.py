"""Read the status of nodes again and again and show it: as a screen on a terminal, else as lines."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live

from sfnode.reporter import Reporter
from sfnode.status import StatusWords
from sfnode.storage import DataDirectory
from sfnode.top.screen import NodeView, draw, look

_LOOK_S = 1.0
_LINE_S = 5.0  # between looks where output scrolls
_QUIT = "qQ\x03\x04"


def show(data_dirs: Sequence[DataDirectory], *, is_once: bool = False) -> bool:
    """Show the nodes until the user quits, or once; return whether all reported at the last look."""
    views = [look(NodeView(data_dir=data_dir)) for data_dir in data_dirs]
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_once or not is_terminal or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        views = _print_lines(views, is_once)
    else:
        with suppress(KeyboardInterrupt):
            views = _run_live(views)
    return not any(view.trouble for view in views)


# --- lines


def _print_lines(views: list[NodeView], is_once: bool) -> list[NodeView]:
    """Print a line for a node each time its text has changed, until none reports; return the last views."""
    printed: dict[DataDirectory, str] = {}
    reporter = Reporter()
    while True:
        for view in views:
            text = view.trouble
            if not text and view.status is not None:
                text = "; ".join([StatusWords(view.status).progress_line, *view.warnings()])
            if text != printed.get(view.data_dir):
                reporter.event("node", f"{view.data_dir.path.name}: {text}")
            printed[view.data_dir] = text
        if is_once or all(view.trouble for view in views):
            return views
        time.sleep(_LINE_S)
        views = [look(view) for view in views]


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
