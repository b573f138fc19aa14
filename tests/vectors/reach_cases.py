"""Vectors of reach (SPEC 8.7): questions and answers as bytes, and whom a node dials when it is asked."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import NamedTuple, cast
from unittest.mock import patch

import trio
from trio.testing import MockClock

from sfnode.network.transport import reachability
from sfnode.network.transport.link import Link
from sfnode.network.transport.reachability import DialBack, Reachability, decode_answer_untrusted
from tests.vectors.notation import Case, Document, case, document

_UNIX_MS = 1_700_000_000_123
_OURS, _OTHER = "198.51.100.7", "2001:0db8:0000:0000:0000:0000:0000:0001"


class Question(NamedTuple):
    """A question that comes at some time from an address, and whether that port of it can be dialled."""

    at_ms: int
    host: str
    port: int
    is_open: bool = True


def reach() -> Document:
    """reach.json"""
    return document("How do you see me, and can you dial me: SPEC 8.7", [*_answers(), *_read(), *_dials()])


# --- the answering side


class _Link:
    """The stream of one question."""

    def __init__(self, question: bytes, host: str, port: int) -> None:
        self._question, self.remote_host, self.remote_port = question, host, port
        self.answer = b""

    async def receive_exactly(self, count: int) -> bytes:
        return self._question[:count]

    async def send_all(self, data: bytes) -> None:
        self.answer += data


def _answered(questions: list[Question], from_port: int = 4_001) -> tuple[list[bytes], list[list[object]]]:
    """The answers, and the addresses that were dialled."""
    clock, dialled = MockClock(), list[list[object]]()

    async def connect(host: str, port: int) -> DialBack:
        dialled.append([_written(host), port])
        open_now = any(each.is_open for each in questions if (each.host, each.port) == (host, port))
        return DialBack.REACHED if open_now else DialBack.NOT_REACHED

    async def answer_all() -> list[bytes]:
        answering, found, now_ms = Reachability(), list[bytes](), 0
        for question in questions:
            clock.jump((question.at_ms - now_ms) / 1_000)
            now_ms = question.at_ms
            link = _Link(struct.pack(">H", question.port), question.host, from_port)
            await answering.answer(cast("Link", link))
            found.append(link.answer)
        return found

    with patch.object(reachability, "_can_connect", connect), patch("time.time", lambda: _UNIX_MS / 1_000):
        return trio.run(answer_all, clock=clock), dialled


def _written(host: str) -> str:
    return ipaddress.ip_address(host).exploded


def _answers() -> Iterator[Case]:
    for name, question, from_port in (
        ("no dial asked for, IPv4", Question(0, _OURS, 0), 4_001),
        ("no dial asked for, IPv6", Question(0, _OTHER, 0), 65_535),
        ("it came about", Question(0, _OURS, 4_002), 1),
        ("it did not", Question(0, _OTHER, 65_535, is_open=False), 256),
    ):
        (data,), _ = _answered([question], from_port)
        given = {"question": struct.pack(">H", question.port).hex(), "host": question.host, "from_port": from_port}
        given |= {"unix_ms": str(_UNIX_MS), "is_open": question.is_open}
        yield case(f"answer: {name}", "answer", given, {"answer": data.hex()})


def _dials() -> Iterator[Case]:
    """Who asks, is dialled; once in 10 s, whatever came of it."""
    chosen = {
        "once in 10 s": [Question(at, _OURS, 80) for at in (0, 125, 9_875, 10_000, 19_875, 20_000)],
        "a question without a port does not count": [Question(0, _OURS, 0), Question(0, _OURS, 80)],
        "without a port there is always an answer": [Question(0, _OURS, 80), Question(1, _OURS, 0)],
        "each address by itself": [Question(0, _OURS, 80), Question(0, _OTHER, 80), Question(1, _OURS, 81)],
        "a dial that failed counts": [Question(0, _OURS, 80, is_open=False), Question(5_000, _OURS, 80, is_open=False)],
        "a question that came too early does not count": [Question(at, _OURS, 80) for at in (0, 9_000, 10_500)],
    }
    for name, questions in chosen.items():
        answers, dialled = _answered(questions)
        given = {"questions": [each._asdict() for each in questions]}
        yield case(f"dials: {name}", "dials", given, {"outcomes": [data[0] for data in answers], "dialled": dialled})


# --- the asking side


def _read() -> Iterator[Case]:
    ((good,), _), ((other,), _) = _answered([Question(0, _OURS, 80)]), _answered([Question(0, _OTHER, 0)])
    for name, data in {
        "good": good,
        "IPv6": other,
        "the largest numbers": b"\3" + b"\xff" * 8 + good[9:25] + b"\xff" * 2,
        "outcome 4": b"\4" + good[1:],
        "a byte less": good[:-1],
        "a byte more": good + b"\0",
        "nothing": b"",
    }.items():
        found = decode_answer_untrusted(data)
        told = found and {
            "outcome": int(found.outcome),
            "unix_ms": str(found.unix_ms),
            "host": _written(found.host),
            "port": found.port,
        }
        yield case(f"read: {name}", "read", {"answer": data.hex()}, {"answer": told})
