"""What the program says while it works: one line per event, as text on a terminal and as JSON elsewhere."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO


class Reporter:
    """Writes events. ``event`` lines stay; ``progress`` lines replace each other on a terminal."""

    def __init__(self, *, is_json: bool | None = None, stream: TextIO | None = None) -> None:
        """``is_json`` None: JSON unless ``stream`` (stdout by default) is a terminal."""
        self._stream = stream or sys.stdout
        self._is_json = not self._stream.isatty() if is_json is None else is_json
        self._is_line_open = False

    def event(self, name: str, text: str, **fields: Any) -> None:
        """Something happened: ``text`` for people, ``name`` and ``fields`` for programs."""
        if self._is_json:
            self._write_json(name, fields)
            return
        self._close_line()
        print(text, file=self._stream, flush=True)

    def progress(self, name: str, text: str, **fields: Any) -> None:
        """Where the work stands now."""
        if self._is_json:
            self._write_json(name, fields)
            return
        print(f"\r\x1b[2K{text}", end="", file=self._stream, flush=True)
        self._is_line_open = True

    def finish(self) -> None:
        """End an open progress line."""
        self._close_line()

    def _close_line(self) -> None:
        if self._is_line_open:
            print(file=self._stream)
            self._is_line_open = False

    def _write_json(self, name: str, fields: dict[str, Any]) -> None:
        line = {"event": name, "time": round(time.time(), 3), **fields}
        print(json.dumps(line), file=self._stream, flush=True)


def format_rate(bytes_per_second: float) -> str:
    """Bytes per second for people: "3.1 kB/s"."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if bytes_per_second < 1_000:
            return f"{bytes_per_second:.1f} {unit}"
        bytes_per_second /= 1_000
    return f"{bytes_per_second:.1f} GB/s"
