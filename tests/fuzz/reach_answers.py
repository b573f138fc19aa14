"""Target ``reach``: what a peer says of how it sees us is taken only in its one form, and packs to the same bytes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from sfnode.network.transport.reachability import decode_answer_untrusted
from tests.fuzz.catalogue import Target


def check_answer(data: bytes) -> None:
    """Accepted exactly when there are 27 bytes with a known outcome; nothing is lost."""
    answer = decode_answer_untrusted(data)
    assert (answer is not None) is (len(data) == 27 and data[0] <= 3)
    if answer is not None:
        address = ipaddress.ip_address(answer.host)
        packed = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
        numbers = bytes([answer.outcome]) + answer.unix_ms.to_bytes(8, "big")
        assert numbers + packed + answer.port.to_bytes(2, "big") == data


def answer_seeds() -> Iterator[bytes]:
    """Answers of each outcome, over both families, and each fault."""
    good = bytes(9) + bytes(10) + b"\xff\xff\x01\x02\x03\x04" + b"\x02\xbc"
    for outcome in range(5):
        yield bytes([outcome]) + good[1:]
    yield good[:9] + bytes(15) + b"\x01" + good[25:]
    yield good[:-1]
    yield good + b"\0"
    yield b""


TARGETS = {"reach": Target(check=check_answer, seeds=answer_seeds)}
