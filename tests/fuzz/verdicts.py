"""What every refusal must be, whatever its reason: short, and text that any terminal and log can take."""

from __future__ import annotations

from protocol.errors import Ignore, Reject

_TEXT_BYTES_MAX = 2_048  # "known are ...", with all names of the largest structure


def reason_of(refusal: Reject | Ignore) -> str:
    """The name of the reason, after a look at the text."""
    check_text(refusal)
    return refusal.reason.name


def check_text(error: Exception, *needed: str) -> str:
    """The text of an error; it names what is ``needed``."""
    text = str(error)
    assert len(text.encode()) <= _TEXT_BYTES_MAX, "a peer or a file makes us write a long text"
    assert all(part in text for part in needed)
    return text
