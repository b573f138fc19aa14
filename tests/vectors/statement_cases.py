"""Vectors of statements (SPEC 2.4, 7.7): bytes and verdicts, and ledgers that are told records and statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from protocol import limits
from protocol.crypto.hashing import Author
from protocol.crypto.keys import Signer
from protocol.ledger.ledger import Ledger
from protocol.ledger.statements import StatementCodec
from protocol.run.admission import work_of
from protocol.run.manifest import Manifest
from protocol.sync.anti_entropy import Request, answer
from protocol.wire import SpansRequest, StatementsRequest, encode
from tests.support.ledgers import admit, claim, exclude, signer
from tests.support.manifests import OWNER
from tests.vectors.ledger_events import Player
from tests.vectors.notation import Case, Document, case, document, judged
from tests.vectors.runs import AUTHOR, DENSE, EXAMPLE, record, run, texts

_LISTED = run({}, admission={"kind": "allow-list", "pow_bits": 0})
_INVITED = run({}, admission={"kind": "invite", "pow_bits": 0}, steps=2_048, authors_max=4)
_WORK = run({}, admission={"kind": "open", "pow_bits": 3})
_RUNS = {"example": EXAMPLE, "allow-list": _LISTED, "invite": _INVITED, "work": _WORK, "dense": DENSE}
_NAMES = {manifest.run_id: name for name, manifest in _RUNS.items()}
_THIEF = Signer(b"thief".ljust(32, b"."))
_SMALL_ORDER = Author(bytes([1]) + bytes(31))


def statements() -> Document:
    """statements.json"""
    cases = [*_works(), *_decoded(), *_ledgers(), *_answers()]
    about = "Who may contribute: work, statements, and ledgers under them: SPEC 2.4, 7.7"
    return document(about, cases, manifests=texts(_RUNS))


def _works() -> Iterator[Case]:
    for name, run_id in {"counting": bytes(range(32)), "example": bytes(EXAMPLE.run_id), "zeros": bytes(32)}.items():
        authors = [AUTHOR.author, *sorted((signer(n).author for n in range(40)), key=lambda a: -work_of(run_id, a))[:3]]
        for number, author in enumerate(authors):
            bits = {"bits": work_of(run_id, author)}
            yield case(f"work: {name}, {number}", "work", {"run_id": run_id.hex(), "author": author.hex()}, bits)


# --- bytes


def _decoded() -> Iterator[Case]:
    for manifest in (EXAMPLE, _LISTED, _INVITED):
        made = {"admission": admit(manifest, 1), "exclusion": exclude(manifest, 1, 3), "claim": claim(manifest, 1, 1)}
        for name, data in made.items():
            yield _decode(f"{_NAMES[manifest.run_id]}: {name}", manifest, data)
    codec = StatementCodec(_INVITED)
    rows = {
        "exclusion from step 0": exclude(_INVITED, 1, 0),
        "exclusion from the last step": exclude(_INVITED, 1, 2_047),
        "exclusion from beyond the end": codec.exclude(OWNER, signer(1).author, 2_048),
        "exclusion from the largest step": codec.exclude(OWNER, signer(1).author, (1 << 32) - 1),
        "admission by another key": codec.admit(_THIEF, signer(1).author),
        "exclusion by another key": exclude(_INVITED, 1, 3, by=_THIEF),
        "token of another key": claim(_INVITED, 1, 1, by=_THIEF),
        "statement of another run": admit(_LISTED, 1),
        "admission of no valid key": codec.admit(OWNER, _SMALL_ORDER),
        "claim of no valid token": b"\3" + _SMALL_ORDER + signer(1).author + bytes(128),
        "claim for another author": claim(_INVITED, 1, 1)[:33] + signer(2).author + claim(_INVITED, 1, 1)[65:],
        "claim signed by another token": claim(_INVITED, 1, 1)[:-64] + claim(_INVITED, 2, 1)[-64:],
        "admission made an exclusion": b"\2" + admit(_INVITED, 1)[1:33] + bytes(4) + admit(_INVITED, 1)[33:],
        "claim of a token for two": claim(_INVITED, 1, 1, uses=2),
        "claim of a token for a hundred": claim(_INVITED, 1, 1, uses=100),
        "claim of a token for more than a hundred": claim(_INVITED, 1, 1, uses=101),
        "claim of a token for three, signed for two": b"\5" + claim(_INVITED, 1, 1, uses=2)[1:],
        "nothing": b"",
        "kind 0": b"\0" + admit(_INVITED, 1)[1:],
        "kind 4": b"\4" + admit(_INVITED, 1)[1:],
        "kind 4, of 129 bytes": b"\4" + bytes(128),
        "a byte less": admit(_INVITED, 1)[:-1],
        "a byte more": admit(_INVITED, 1) + b"\0",
        "a flipped bit in the signature": admit(_INVITED, 1)[:-1] + bytes([admit(_INVITED, 1)[-1] ^ 1]),
        "order: step before key": codec.exclude(OWNER, _SMALL_ORDER, 2_048),
        "order: key before signature": codec.admit(_THIEF, _SMALL_ORDER),
    }
    for name, data in rows.items():
        yield _decode(name, _INVITED, data)


def _decode(name: str, manifest: Manifest, data: bytes) -> Case:
    codec = StatementCodec(manifest)

    def members() -> dict[str, Any]:
        found = codec.decode_untrusted(data)
        codec.check_signed(found)
        fields: dict[str, Any] = (
            {"kind": int(found.kind), "uses": found.uses} if found.uses > 1 else {"kind": int(found.kind)}
        )
        fields |= {"author": found.author.hex(), "from_step": found.from_step}
        return fields | {"token": found.token.hex()}

    given = {"manifest": _NAMES[manifest.run_id], "statement": data.hex()}
    return case(f"decode: {name}", "decode", given, judged(members))


# --- ledgers


def _ledgers() -> Iterator[Case]:
    steps = (6, 7, 8)
    mine = [record(EXAMPLE, step, step + 1) for step in steps]
    other = [record(EXAMPLE, 7, 9, author=signer(1)), record(EXAMPLE, 7, 5)]
    codec = StatementCodec(EXAMPLE)
    said = [codec.exclude(OWNER, AUTHOR.author, step) for step in (7, 8, 0)]
    before = Player(EXAMPLE, [*mine, *other], said).add(0, 1, 2, 3).look().state(0).look(spans=True)
    before.add(1, 2, 4, expect="EXCLUDED").state(0, 1, expect="ALREADY_HELD").state(2).look()
    after = Player(EXAMPLE, [*mine, *other], said).state(1).add(0, 1).add(2, expect="EXCLUDED").add(3).state(0)
    after.look(spans=True).state(2).look()
    void = (
        Player(EXAMPLE, [*mine, *other], said).add(0, 1, 3).add(4, expect="VOID").look().state(0).look().state(2).look()
    )
    yield _case("exclusion, before and after what it concerns", EXAMPLE, [*mine, *other], said, before, after, void)
    yield _listed()
    yield _invited()
    yield _class()
    enough = next(n for n in range(100) if work_of(_WORK.run_id, signer(n).author) >= 3)
    short = next(n for n in range(100) if work_of(_WORK.run_id, signer(n).author) == 2)
    records = [record(_WORK, 1, 1, author=signer(n)) for n in (enough, short)]
    worked = Player(_WORK, records).add(0).add(1, expect="AUTHOR_WORK").look()
    yield _case("work", _WORK, records, [], worked)
    yield _suspended()
    yield _crowded()
    yield _dense()


def _listed() -> Case:
    records = [record(_LISTED, step, 3, author=signer(n)) for n in (1, 2) for step in (0, 5)]
    said = [admit(_LISTED, 1), admit(_LISTED, 2), exclude(_LISTED, 2, 5), exclude(EXAMPLE, 1, 1)]
    late = Player(_LISTED, records, said).add(0, 1, 2, 3, expect="NOT_ADMITTED").look().state(0).add(0, 1)
    late.add(2, expect="NOT_ADMITTED").state(2).add(3, expect="EXCLUDED").state(1).add(2).look(spans=True)
    late.state(3, expect="STATEMENT_SIGNATURE").look()
    early = Player(_LISTED, records, said).state(1, 0).add(3, 2, 1, 0).state(2).look(spans=True)
    return _case("allow-list", _LISTED, records, said, late, early)


def _invited() -> Case:
    """A token claimed twice, an author with another good one, places in a table of four."""
    records = [record(_INVITED, step, 2, author=signer(n)) for n in (1, 2) for step in (0, 1_023, 1_024)]
    said = [claim(_INVITED, 1, 1), claim(_INVITED, 1, 2), claim(_INVITED, 2, 2), claim(_INVITED, 1, 3)]
    first = Player(_INVITED, records, said).state(0).add(0, 1, 2).look().add(3, expect="NOT_ADMITTED").state(2)
    first.add(3, 4, 5).look().state(1).look(spans=True).add(0, expect="NOT_ADMITTED").state(3, expect="ALREADY_HELD")
    second = Player(_INVITED, records, said).state(3).state(1, 2).add(0, expect="NOT_ADMITTED").add(5, 4, 3).look()
    return _case("invitations", _INVITED, records, said, first, second)


def _class() -> Case:
    """A token for three authors: the fourth makes it void for all; whom the owner has named stays."""
    records = [record(_INVITED, step, 2, author=signer(n)) for n in range(1, 5) for step in (0, 1)]
    said = [
        *(claim(_INVITED, 1, n, uses=3) for n in (3, 1, 2, 4, 5)),
        admit(_INVITED, 1),
        claim(_INVITED, 1, 1, uses=2),
    ]
    filled = Player(_INVITED, records, said).state(0).look().state(1, 2).add(*range(6)).add(6, expect="NOT_ADMITTED")
    filled.look().state(1, expect="ALREADY_HELD").state(5).look().state(3).look(spans=True)
    filled.state(4, expect="ALREADY_HELD").add(0, 1, expect="ALREADY_HELD").add(2, expect="NOT_ADMITTED").look()
    other = Player(_INVITED, records, said).state(2, 1, 0).look().state(3, 5).add(0, 1).look(spans=True).state(6).look()
    return _case("a token for three", _INVITED, records, said, filled, other)


def _suspended() -> Case:
    """Records of an author whose token is void are kept, and hold slots again when the author is admitted."""
    records = [record(_INVITED, step, 2, author=signer(1)) for step in (0, 1_023, 1_024)]
    records += [record(_INVITED, 1_023, 3, author=signer(1)), record(_INVITED, 5, 4, author=signer(1))]
    said = [claim(_INVITED, 1, 1), claim(_INVITED, 1, 2), admit(_INVITED, 1), claim(_INVITED, 2, 1)]
    said += [exclude(_INVITED, 1, 1_024)]

    def begun() -> Player:
        player = Player(_INVITED, records, said).state(0).add(0, 1, 2).add(3, expect="VOID").look()
        return player.state(1).look().add(4, 0, expect="NOT_ADMITTED").look()

    admitted = begun().state(2).look(spans=True).add(0, expect="ALREADY_HELD").add(1, expect="SLOT_VOID").add(4).look()
    claimed = begun().state(3).look(spans=True)
    excluded = begun().state(4).look().state(2).look(spans=True).add(2, expect="EXCLUDED")
    never = Player(_INVITED, records, said).state(0, 1).add(0, 1, expect="NOT_ADMITTED").state(2).look(spans=True)
    for_good = Player(_INVITED, records, said).state(0).add(0, 2).state(4).look().state(1).look().state(2).look()
    players = (admitted, claimed, excluded, never, for_good)
    return _case("suspended records", _INVITED, records, said, *players)


def _dense() -> Case:
    """Who is excluded takes rows and sums out of every step from there on."""
    records = [record(DENSE, step, n, *[step - 3 * n] * 8, author=signer(n)) for n in (1, 2) for step in (1, 3, 5)]
    said = [exclude(DENSE, 1, 3), exclude(DENSE, 2, 0)]
    after = Player(DENSE, records, said).add(*range(6)).look().state(0).look().state(1).look()
    before = Player(DENSE, records, said).state(0).add(0, 3, 4, 5).add(1, 2, expect="EXCLUDED").look().state(1).look()
    return _case("dense cores, exclusions before and after", DENSE, records, said, after, before)


def _crowded() -> Case:
    """A full roster takes what is about a key that it holds, and nothing about another, whoever signed that."""
    most = 3
    said = [admit(_INVITED, 1), claim(_INVITED, 1, 1), exclude(_INVITED, 2, 9), admit(_INVITED, 2)]
    said += [StatementCodec(_INVITED).admit(_THIEF, signer(3).author), exclude(_INVITED, 2, 8), claim(_INVITED, 1, 2)]
    with patch.multiple(limits, STATEMENTS_MAX=most):
        full = Player(_INVITED, [], said).state(0, 1, 2).state(3, 4, expect="STATEMENTS_FULL")
        full.state(0, 2, expect="ALREADY_HELD").state(5, 6).look()
    found = _case("a full roster", _INVITED, [], said, full)
    return found | {"input": found["input"] | {"statements_max": most}}


def _case(name: str, manifest: Manifest, records: list[bytes], said: list[bytes], *players: Player) -> Case:
    given = {"manifest": _NAMES[manifest.run_id], "records": [data.hex() for data in records]}
    given |= {"statements": [data.hex() for data in said]}
    return case(f"ledger: {name}", "ledger", given, {"runs": [player.events for player in players]})


# --- answers


def _answers() -> Iterator[Case]:
    said = [admit(_INVITED, 1), exclude(_INVITED, 2, 7), claim(_INVITED, 1, 1), claim(_INVITED, 1, 2)]
    for name, after in {"all": bytes(33), "after the first": said[0][:33], "after the last": b"\xff" * 33}.items():
        yield _answer(f"answer: {name}", said, after)
    yield _answer("answer: of none", [], bytes(33))
    many = [admit(_INVITED, number) for number in range(129)]
    yield _answer("answer: a page of 128, not the last", many, bytes(33))
    yield _answer("answer: the rest", many, sorted(many)[127][:33])
    twice = [*many[:127], claim(_INVITED, 1, 1), claim(_INVITED, 1, 2), claim(_INVITED, 2, 3)]
    yield _answer("answer: 128 keys, the last of them a token claimed twice", twice[:-1], bytes(33))
    yield _answer("answer: 129 keys, one of them a token claimed twice", twice, bytes(33))
    full = [claim(_INVITED, 1, number, uses=100) for number in range(101)]
    some = [claim(_INVITED, 2, number, uses=50) for number in range(51)]
    yield _answer("answer: a page of two tokens for many authors", [*many[:64], *full, *some[:51]], bytes(33))
    held = [*many[:10], *(claim(_INVITED, token, n, uses=99) for token in (1, 2, 3) for n in range(90))]
    yield _answer("answer: a page that ends before a token for many authors", held, bytes(33))
    for name, listed in {"some statements": said, "no statement": []}.items():
        yield _answered(f"answer: spans and {name}", listed, SpansRequest(request=7))


def _answer(name: str, said: list[bytes], after: bytes) -> Case:
    return _answered(name, said, StatementsRequest(request=7, after=after))


def _answered(name: str, said: list[bytes], request: Request) -> Case:
    ledger = Ledger(_INVITED)
    for data in said:
        ledger.add_statement(data)
    given = {"manifest": "invite", "statements": [data.hex() for data in said], "request": encode(request).hex()}
    return case(name, "answer", given, {"messages": [encode(message).hex() for message in answer(ledger, request)]})
