"""Make the stream of changes to each browser: all sections first, then those that have changed.

Nothing is queued for a slow browser: it gets the newest sections when it is ready for more.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from sfnode.page import Page
from sfnode.unexpected_errors import Slips

VIEWERS_MAX = 8
_LOOK_S = 1.0
_SILENCE_S = 20.0  # then a comment is sent: proxies and browsers give up on a silent stream


class Viewers:
    """Refreshes a page once a second while at least one browser watches."""

    def __init__(self, page: Page, slips: Slips) -> None:
        self._page, self._slips = page, slips
        self._texts: dict[str, str] = {}
        self._changed: dict[str, int] = {}  # section -> number of the look that found it new
        self.looks = 0
        self._news = trio.Event()
        self._watching = 0

    async def run(self) -> None:
        """Refresh the sections once a second until cancelled."""
        while True:
            self._look()
            await trio.sleep(_LOOK_S)

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Hold a place among the viewers while the context lasts; yield False if all are taken."""
        if self._watching >= VIEWERS_MAX:
            yield False
            return
        self._watching += 1
        try:
            if self._watching == 1:
                self._look()
            yield True
        finally:
            self._watching -= 1

    def event_since(self, look: int) -> bytes:
        """Return a server-sent event with the sections changed since ``look``, or a comment if none has changed."""
        fresh = [f'"{name}":{self._texts[name]}' for name, changed in self._changed.items() if changed > look]
        return f"data: {{{','.join(fresh)}}}\n\n".encode() if fresh else b": still here\n\n"

    async def wait_beyond(self, look: int) -> None:
        """Wait until a look after ``look`` finds a change, or until a keep-alive is due."""
        with trio.move_on_after(_SILENCE_S):
            while self.looks == look:
                await self._news.wait()

    def _look(self) -> None:
        """Refresh the sections if somebody watches; after a slip the next look tries again."""
        with self._slips.contained("the page", endings=()):
            sections = self._page.sections() if self._watching else {}
            texts = {name: json.dumps(section, separators=(",", ":")) for name, section in sections.items()}
            fresh = [name for name, text in texts.items() if self._texts.get(name) != text]
            if fresh:
                self.looks += 1
                self._texts = texts
                self._changed |= dict.fromkeys(fresh, self.looks)
                self._news.set()
                self._news = trio.Event()
