"""The tests. Folders mirror the source; `support` is the one home of builders and fakes."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
