"""The QR code of a string to join: in a terminal, and as a picture."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Final

import segno

from sfnode.storage import write_new

_BORDER: Final = 2  # modules; the standard asks for four, and phones read it with two, which a narrow terminal has
_SVG_SCALE: Final = 6  # pixels for each module: 400 in all, for a phone that is held against a screen


# Dark modules show the terminal's background, and light ones its text's colour.
_BLOCKS: Final = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


def is_qr_shown() -> bool:
    """Whether the standard output is a terminal that has the characters for it."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")


def qr_lines(string: str) -> list[str]:
    """Lines of half blocks, some 65 columns wide: dark on light in the terminal's usual light-on-dark colours."""
    rows = [list(row) for row in _code(string).matrix_iter(border=_BORDER)]
    rows += [[0] * len(rows[0])] * (len(rows) % 2)
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(_BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(*pair, strict=True)) for pair in pairs]


def write_svg(string: str, path: Path) -> None:
    """The code as an SVG file, which only this user may read: an invitation is a secret. OperatorError."""
    picture = io.BytesIO()
    _code(string).save(picture, kind="svg", scale=_SVG_SCALE, light="white")
    write_new(path, [picture.getvalue()], mode=0o600)


def _code(string: str) -> segno.QRCode:
    """Upper-case letters take a third less room; the string may have either case."""
    return segno.make_qr(string.upper(), error="l")
