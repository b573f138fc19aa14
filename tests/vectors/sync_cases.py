"""Vectors of anti-entropy (SPEC 8.4): what a ledger answers to a request, and which answers are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from protocol.ledger.digest_buckets import bitmap_of, shard_of
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.sync.anti_entropy import Request, answer
from protocol.wire import AuthorsRequest, PayloadsRequest, PullRequest, ShardsRequest, SpansRequest, WantedSlots, encode
from tests.support.ledgers import ledger_of, signer
from tests.vectors.ledger_cases import SPANS
from tests.vectors.notation import Case, Document, case, compact, document
from tests.vectors.runs import EXAMPLE, record, run, texts
from tests.vectors.sync_answers import INVITED, checked_answers

# 2,156 bytes a record: 30 in a frame, 60 in an answer.
LARGE = run({"rank": 1, "directions": 256, "local_steps": 4, "epoch_steps": 4}, steps=128, authors_max=4)
MANIFESTS = {"example": EXAMPLE, "spans": SPANS, "large": LARGE, "invite": INVITED}
_SHOWN_BYTES_MAX = 2_048  # longer messages are given by their hash
_ZEROS, _ONES = bytes(32), b"\xff" * 32
_ALL = b"\xff" * 128


class Held(NamedTuple):
    """A ledger that cases name, and the records that make it, in their order."""

    manifest: Manifest
    records: list[bytes]


def _small() -> Held:
    """Three authors; author 1 has a void slot, author 2 nothing but one."""
    records = [record(EXAMPLE, step, step, author=signer(author)) for author in (0, 1) for step in (0, 5, 39)]
    records += [record(EXAMPLE, 5, 900, author=signer(1))]
    return Held(EXAMPLE, records + [record(EXAMPLE, 8, value, author=signer(2)) for value in (2, 1)])


def _long() -> Held:
    steps = (0, 1_023, 1_026, 2_049, 3_075)
    records = [record(SPANS, step, 1, 2, 3, author=signer(author)) for author in range(4) for step in steps]
    return Held(SPANS, [*records, record(SPANS, 1_023, 3, 2, 1, author=signer(3))])


def _crowd() -> Held:
    """130 authors, in the order of their numbers, not of their keys."""
    return Held(EXAMPLE, [record(EXAMPLE, 1, number, author=signer(number)) for number in range(130)])


def _large() -> Held:
    """64 slots of two authors; the 60th in order of (author as wanted, step) is void."""
    records = [
        record(LARGE, step, *[step] * 1_024, author=signer(author)) for author in (0, 1) for step in range(0, 128, 4)
    ]
    return Held(LARGE, [*records, record(LARGE, 4 * 27, *[1] * 1_024, author=signer(1))])


HELD = {"empty": Held(EXAMPLE, []), "small": _small(), "spans": _long(), "crowd": _crowd(), "large": _large()}


def sync() -> Document:
    """sync.json"""
    names = {manifest.run_id: name for name, manifest in MANIFESTS.items()}
    held = {
        name: {"manifest": names[entry.manifest.run_id], "records": [_written(data) for data in entry.records]}
        for name, entry in HELD.items()
    }
    about = "What a ledger answers, and which answers are refused: SPEC 8.4"
    requests = [*_spans(), *_shards(), *_authors(), *_payloads(), *_pulls()]
    cases = [_answered(*row) for row in requests]
    return document(about, [*cases, *checked_answers()], manifests=texts(MANIFESTS), ledgers=held)


def _written(data: bytes) -> object:
    pieces = [step.to_bytes(2, "big") for step in (*range(0, 128, 4), 1)] if len(data) > 1_000 else []
    parts = compact(data, *pieces, readable=False)
    return parts[0] if len(parts) == 1 else parts


def _answered(name: str, ledger_name: str, request: Request) -> Case:
    messages = [encode(message) for message in answer(_ledger(ledger_name), request)]
    given = {"ledger": ledger_name, "request": _request(request)}
    return case(f"answer: {name}", "answer", given, {"messages": [_message(data) for data in messages]})


def _request(request: Request) -> object:
    """The request's bytes; slots that it asks for many times are written once."""
    rows: list[bytes] = []
    if isinstance(request, PullRequest):
        one = encode(replace(request, wanted=request.wanted[:1]))
        rows = [one[one.index(b"\x91", 1) + 1 :]]  # behind the head of the list of one
    parts = compact(encode(request), *rows, readable=False)
    return parts[0] if len(parts) == 1 else parts


def _message(data: bytes) -> Any:
    if len(data) > _SHOWN_BYTES_MAX:
        return {"sha256": sha256(data).hexdigest(), "length": len(data)}
    return _written(data)


@cache
def _ledger(name: str) -> Ledger:
    return ledger_of(*HELD[name])


_Row = tuple[str, str, Request]


def _spans() -> Iterator[_Row]:
    for number, name in enumerate(HELD):
        yield f"spans of {name}", name, SpansRequest(request=number)


def _shards() -> Iterator[_Row]:
    for name, span in (("empty", 0), ("small", 0), ("small", 1), ("small", 1_023), ("spans", 1), ("spans", 3)):
        yield f"shards of {name}, span {span}", name, ShardsRequest(request=7, span=span)
    yield "shards of crowd", "crowd", ShardsRequest(request=(1 << 32) - 1, span=0)


def _authors() -> Iterator[_Row]:
    every = tuple(range(256))
    by_key = sorted(signer(number).author for number in range(130))
    first, void = (shard_of(signer(number).author) for number in (0, 2))
    for name, held, span, shards, after in (
        ("nothing held", "empty", 0, every, _ZEROS),
        ("all", "small", 0, every, _ZEROS),
        ("one shard", "small", 0, (first,), _ZEROS),
        ("nothing but a void slot", "small", 0, (void,), _ZEROS),
        ("two shards, not in order", "small", 0, (max(first, void), min(first, void)), _ZEROS),
        ("a shard twice", "small", 0, (first, first), _ZEROS),
        ("a shard that holds nothing", "small", 0, ((first + 1) % 256,), _ZEROS),
        ("after the first", "small", 0, every, min(signer(number).author for number in range(3))),
        ("after the last", "small", 0, every, _ONES),
        ("another span", "small", 1, every, _ZEROS),
        ("steps within the span", "spans", 1, every, _ZEROS),
        ("page of 128, two remain", "crowd", 0, every, _ZEROS),
        ("the two that remain", "crowd", 0, every, by_key[127]),
        ("128 are left: the last page", "crowd", 0, every, by_key[1]),
        ("129 are left", "crowd", 0, every, by_key[0]),
        ("after a key that nobody has", "crowd", 0, every, by_key[126][:31] + bytes([by_key[126][31] ^ 1])),
    ):
        yield f"authors, {name}", held, AuthorsRequest(request=8, span=span, shards=shards, after=after)


def _payloads() -> Iterator[_Row]:
    for name, held, span, author in (
        ("without void slots", "small", 0, signer(0).author),
        ("void slots left out", "small", 0, signer(1).author),
        ("void slots only", "small", 0, signer(2).author),
        ("unknown author", "small", 0, signer(99).author),
        ("another span", "spans", 2, signer(0).author),
        ("a span without slots", "small", 5, signer(0).author),
    ):
        yield f"payloads, {name}", held, PayloadsRequest(request=9, span=span, author=author)


def _wanted(author: int, *steps: int, span: int = 0, every: bool = False) -> WantedSlots:
    bitmap = _ALL if every else bitmap_of(list(steps))
    return WantedSlots(span=span, author=signer(author).author, steps=bitmap)


def _pulls() -> Iterator[_Row]:
    for name, held, wanted in (
        ("one slot", "small", [_wanted(0, 5)]),
        ("by step", "small", [_wanted(0, 39, 0)]),
        ("a void slot: both, first come first", "small", [_wanted(2, 8)]),
        ("authors as asked", "small", [_wanted(1, 0, 5), _wanted(0, 39)]),
        ("the same slot twice", "small", [_wanted(0, 5), _wanted(0, 5)]),
        ("slots not held", "small", [_wanted(0, 1, 2, 3)]),
        ("nobody known", "small", [_wanted(99, every=True)]),
        ("spans", "spans", [_wanted(0, 3_075, span=3), _wanted(3, every=True)]),
        ("whatever is held", "spans", [_wanted(3, every=True, span=1), _wanted(3, every=True, span=2)]),
        ("30 records: one frame", "large", [_wanted(0, *range(0, 120, 4))]),
        ("31 records: two frames", "large", [_wanted(0, *range(0, 124, 4))]),
        ("512 records in a frame, the same slots asked for again and again", "small", [_wanted(1, every=True)] * 256),
        ("60 records and no more, a void slot cut apart", "large", [_wanted(n, every=True) for n in (0, 1)]),
    ):
        yield f"pull, {name}", held, PullRequest(request=10, wanted=tuple(wanted))
