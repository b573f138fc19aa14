"""The form of a string that is pasted from chats: `sfnode:v1.` and base32, with a length and a checksum.

`run_address` knows its content. Upper or lower case, spaces and line breaks do not matter.
"""

import base64
import hashlib
import re

from protocol.errors import OperatorError

SCHEME = "sfnode:"
_VERSION = "v1."
_PREFIX = SCHEME + _VERSION
_LENGTH_BYTES = 2
_CHECKSUM_BYTES = 4  # one wrong letter in 2^32 goes unnoticed
_BYTES_MAX = 1 << 12  # four addresses with long names and an invitation take a third
# What chats, mail programs and quotations insert: white space, marks of a quotation, invisible joiners, soft hyphens.
_INSERTED = re.compile("(?:=\r?\n|[\\s>|\u00ad\u200b-\u200f\u2060\ufeff])+")
_AROUND = "\"'`<>()[]*_.,;!?\u2018\u2019\u201c\u201d\u201e\u2026\u00ab\u00bb"
_SCHEME_AS_PASTED = re.compile(rf"{SCHEME[:-1]}(?::|%3a)(?://)?(?=v[0-9]+\.)", re.IGNORECASE)
_HOW = "Copy all of it, from sfnode: to the end, in quotation marks where it has spaces"


def wrapped(content: bytes) -> str:
    """Return the string for at most `_BYTES_MAX` bytes."""
    assert len(content) <= _BYTES_MAX
    data = len(content).to_bytes(_LENGTH_BYTES, "big") + content
    data += hashlib.sha256(b"sfnode/join/1" + data).digest()[:_CHECKSUM_BYTES]
    return _PREFIX + base64.b32encode(data).decode("ascii").rstrip("=").lower()


def is_wrapped(text: str) -> bool:
    """Return whether a text begins as such a string, of this version or another."""
    return re.match(rf"{SCHEME}v[0-9]+\.", cleaned(text), re.IGNORECASE) is not None


def unwrapped(text: str) -> bytes:
    """Return the bytes of a string. OperatorError: it is cut off, has a wrong letter, or is of a later release."""
    found = cleaned(text).lower()
    if not found.startswith(_PREFIX):
        version = found.partition(".")[0].removeprefix(SCHEME)
        raise OperatorError(
            f"the string to join is of version {version}, and this sfnode reads {_VERSION.rstrip('.')}: update sfnode"
        )
    digits = found.removeprefix(_PREFIX)
    if len(digits) % 8 in (1, 3, 6):  # no whole bytes: the string is truncated
        digits = digits[:-1]
    data = _decoded(digits + "=" * (-len(digits) % 8))
    whole = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big") + _CHECKSUM_BYTES
    wanted = len(_PREFIX) + -(-8 * whole // 5)
    if len(data) < whole:
        place = f" after {len(found)} of its {wanted} characters" if len(data) >= _LENGTH_BYTES else ""
        raise OperatorError(f"the string to join is cut off{place}. {_HOW}")
    content = data[_LENGTH_BYTES:-_CHECKSUM_BYTES]
    if len(content) > _BYTES_MAX or wrapped(content) != found:  # also where only the last letter's unused bits differ
        raise OperatorError(f"the string to join is not as it was made: a character is wrong or too many. {_HOW}")
    return content


def cleaned(text: str) -> str:
    """Return the text without white space, punctuation around it, and what stands before its last string."""
    before, *strings = _SCHEME_AS_PASTED.split(_INSERTED.sub("", text).strip(_AROUND))
    return SCHEME + strings[-1] if strings else before


def _decoded(digits: str) -> bytes:
    try:
        return base64.b32decode(digits, casefold=True)
    except ValueError:
        wrong = sorted(set(digits.rstrip("=")) - set("abcdefghijklmnopqrstuvwxyz234567"))
        said = f"has {wrong[0]!r} in it, which does not belong there" if wrong else "was cut off"
        raise OperatorError(f"the string to join {said}. {_HOW}") from None
