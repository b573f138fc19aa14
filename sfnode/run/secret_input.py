"""Reads text that other users of the machine must not see, such as an invitation: from a file, stdin or a prompt.

Everybody can read a command line in the process list.
"""

import getpass
import sys

from protocol.errors import OperatorError
from sfnode.storage import disk

_FILE = "@"
_INPUT = "-"
_BYTES_MAX = 1 << 16  # a join string takes less than two thousand


def private_words(given: str, what: str) -> list[str]:
    """Return the words of a text that is ``given`` as @FILE, as - for standard input or a prompt, or directly.

    ``what`` names it in errors, as "the invitation". OperatorError: there is no text, or it cannot be read.
    """
    if given == _INPUT:
        source = "standard input"
        if sys.stdin.isatty():
            asked = getpass.getpass(f"Paste {what}, then press Enter (it is not shown): ")
            data = asked.encode("utf-8", "surrogateescape")
        else:
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
    elif given.startswith(_FILE):
        if given == _FILE:
            raise OperatorError(f"{what} was to be in a file, but {_FILE} is followed by no name")
        source = str(path := disk.from_home(given.removeprefix(_FILE)))
        with disk.opened_file(path, what) as file, disk.os_errors(f"read {what} from {path}"):
            data = file.read(_BYTES_MAX + 1)
    else:
        return [given]
    try:
        is_utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # the mark that PowerShell's `>` begins a file with
        words = data.decode("utf-16" if is_utf_16 else "utf-8-sig").split()
    except UnicodeDecodeError:
        raise OperatorError(f"{what} in {source} is no text. Save what you were sent as plain text") from None
    if len(data) > _BYTES_MAX:
        raise OperatorError(f"{source} is too long to be {what}: save it alone")
    if words:
        return words
    raise OperatorError(f"{source} is empty: {what} was to be there, on one line or several, once")
