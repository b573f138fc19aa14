"""QR codes of strings to join: in a terminal, and as a picture in a file."""

import io
import sys
from pathlib import Path

import segno

from sfnode.storage import disk

_BORDER = 2  # modules; the standard asks for four, but phones read two, which fit a narrow terminal
_SVG_SCALE = 6  # pixels for each module: some 400 in all, enough for a phone in front of a screen
# A dark module has the terminal's background colour, a light one its text colour.
_BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


def is_qr_shown() -> bool:
    """Return whether standard output is a terminal that can show the block characters."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")


def qr_lines(string: str) -> list[str]:
    """Return the code as lines of half blocks, some 65 columns wide, for a terminal with light text on dark."""
    rows = [list(row) for row in _code(string).matrix_iter(border=_BORDER)]
    rows += [[0] * len(rows[0])] * (len(rows) % 2)
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(_BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(*pair, strict=True)) for pair in pairs]


def write_svg(string: str, path: Path) -> None:
    """Write the code as an SVG file with mode 0600, because an invitation is a secret. Raises OperatorError."""
    picture = io.BytesIO()
    _code(string).save(picture, kind="svg", scale=_SVG_SCALE, light="white")
    disk.write_new(path, [picture.getvalue()], mode=0o600)


def _code(string: str) -> segno.QRCode:
    """Return the QR code in upper case, which takes a third less room; readers of the string ignore case."""
    return segno.make_qr(string.upper(), error="l")
