"""Cases of strings.json: invitations for several authors, and names that nodes give themselves."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.run.invitation import Invitation, read_invitation
from sfnode.network.policy.node_names import is_fit, read_name_untrusted, sign_name
from tests.vectors.notation import Case, case

_RUN_ID = bytes(range(32))
_ME, _OTHER = Signer(bytes(32)), Signer(b"\1" * 32)


def invitations_for_many(packed: bytes) -> Iterator[Case]:
    """``packed``: an invitation for one author."""
    thirty = Invitation(secret=packed[:32], signature=packed[32:], uses=30)
    given = {"secret_seed": packed[:32].hex(), "signature": packed[32:].hex()}
    yield case("invitation: written for thirty", "invite", {**given, "uses": 30}, {"text": thirty.text})
    numbers = {
        "for two": b"\2",
        "for a hundred": b"\x64",
        "for 101": b"\x65",
        "for one, told": b"\1",
        "for none": b"\0",
    }
    texts = {name: _invite(packed + number) for name, number in numbers.items()}
    texts |= {"two bytes more": _invite(packed + b"\2\2"), "for thirty, without padding": thirty.text.rstrip("=")}
    texts["for thirty, with another bit after the last byte"] = _unused_bit(thirty.text)
    for name, text in texts.items():
        try:
            found: Invitation | None = read_invitation(text)
        except OperatorError:
            found = None
        told = found and {**given, "uses": found.uses}
        yield case(f"invitation: {name}", "invitation", {"text": text}, {"invitation": told})


def _unused_bit(padded: str) -> str:
    """The text with another last digit, of which only bits that are left over differ."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    text = padded.rstrip("=")
    assert padded == f"{text}=="
    return f"{text[:-1]}{digits[digits.index(text[-1]) + 1]}=="


def _invite(packed: bytes) -> str:
    return "invite:" + base64.urlsafe_b64encode(packed).decode()


def names() -> Iterator[Case]:
    """What a node says of itself, and what others make of it."""
    for name in ("Ann", "Zo\u00eb \U0001f600", "a:b", "x" * 32):
        given = {"secret_seed": bytes(32).hex(), "run_id": _RUN_ID.hex(), "seconds": 1_700_000_000, "name": name}
        text = sign_name(_ME, _RUN_ID, name, 1_700_000_000).text
        yield case(f"name: {name}", "name", given, {"text": text})
    good = sign_name(_ME, _RUN_ID, "Ann", 1_700_000_000).text
    start, seconds, signature, _ = good.split(":")
    plus = next(text for at in range(99) if "-" in (text := sign_name(_ME, _RUN_ID, f"a{at}", 7).text))
    texts = {
        "read": good,
        "with a colon and a space in it": sign_name(_ME, _RUN_ID, "a: b", 7).text,
        "11 digits": sign_name(_ME, _RUN_ID, "Ann", 99_999_999_999).text,
        "12 digits": sign_name(_ME, _RUN_ID, "Ann", 100_000_000_000).text,
        "a zero before the seconds": good.replace(seconds, f"0{seconds}"),
        "other seconds": good.replace(seconds, "1700000001"),
        "digits of another script": good.replace(seconds, "\u0661\u0667"),
        "another name": good.replace("Ann", "Anna"),
        "of another node": sign_name(_OTHER, _RUN_ID, "Ann", 1_700_000_000).text,
        "for another run": sign_name(_ME, bytes(32), "Ann", 1_700_000_000).text,
        "without padding": f"{start}:{seconds}:{signature.rstrip('=')}:Ann",
        "+ in place of -": plus.replace("-", "+"),
        "another bit after the last byte": good.replace(signature, _unused_bit(signature)),
        "of 32 letters": sign_name(_ME, _RUN_ID, "\u00e4" * 32, 7).text,
        "an address": "/ip4/203.0.113.7/tcp/4001",
        "its beginning in upper case": good.replace("name:", "NAME:"),
        **{f"unfit: {name!r}": sign_name(_ME, _RUN_ID, name, 7).text for name in _UNFIT},
    }
    assert not any(is_fit(name) for name in _UNFIT)
    for name, text in texts.items():
        found = read_name_untrusted(text, _ME.author, _RUN_ID)
        told = found and {"seconds": found.seconds, "name": found.name}
        given = {"text": text, "author": _ME.author.hex(), "run_id": _RUN_ID.hex()}
        yield case(f"name: {name}", "read_name", given, {"name": told})


# None, too long, spaces at the ends, another space, a line break, what turns the direction, what joins, a private one
_UNFIT = ("", "x" * 33, " Ann", "Ann ", "A\u00a0n", "A\nn", "A\u202en", "A\u200dn", "A\ue000n")
