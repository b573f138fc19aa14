"""Vectors of log files (SPEC 9.4): whole runs as files, and every way in which they are refused."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.documents.log_file import BASIS, RECORDS, STATEMENTS, LogReader
from protocol.run.manifest import Manifest, sign_manifest
from tests.support.ledgers import admit, claim, exclude, seal, signer
from tests.support.manifests import OWNER
from tests.vectors import edwards
from tests.vectors.dense_cases import FILE, VIEWED
from tests.vectors.log_files import Block, Log, log_of
from tests.vectors.notation import Case, Document, as_bytes, case, document, judged, repeat, sliced
from tests.vectors.runs import EXAMPLE, run

_INVITED = run({}, admission={"kind": "invite", "pow_bits": 0}, authors_max=3)
_ZEROS_MIN = 4_096  # in a row
_SMALL_ORDER = bytes([1]) + bytes(31)


def _rows(manifest: Manifest, *slots: tuple[int, int]) -> list[bytes]:
    return [seal(manifest, author, step, 1) for author, step in slots]


def _plain() -> Log:
    rows = _rows(EXAMPLE, (1, 0), (2, 0), (1, 7), (3, 39))
    return log_of(sign_manifest(EXAMPLE, OWNER), [*rows, seal(EXAMPLE, 2, 0, 500)])


_SAID = sorted([admit(_INVITED, 1), admit(_INVITED, 2), claim(_INVITED, 1, 3), exclude(_INVITED, 2, 9)])


def _invited() -> Log:
    return log_of(sign_manifest(_INVITED, OWNER), _rows(_INVITED, (1, 3), (2, 3), (3, 20)), _SAID)


def _dense() -> Log:
    rows = [seal(VIEWED, 1, step, 3, *range(-4, 4)) for step in (0, 3)]
    return log_of(sign_manifest(VIEWED, OWNER), rows, basis=FILE)


PLAIN, INVITED, DENSE = _plain(), _invited(), _dense()
_BASE = b"".join(log.encode() for log in (PLAIN, INVITED, DENSE))


def logs() -> Document:
    """logs.json"""
    groups = (_good, _beginnings, _blocks, _bases, _checks, _parts, _orders, _ends)
    cases = [made for group in groups for made in group()]
    return document("Log files: SPEC 9.4", cases, base=_BASE.hex())


def _read(
    name: str, log: Log | bytes, expect: str | None = "LOG_FORMAT", *, block_bytes_max: int | None = None
) -> Case:
    data = log.encode() if isinstance(log, Log) else log
    with patch.multiple(limits, LOG_BLOCK_BYTES_MAX=block_bytes_max or limits.LOG_BLOCK_BYTES_MAX):
        found = judged(lambda: _members(data))
    assert found["reason"] == expect, (name, found)
    written = _written(data)
    assert as_bytes(written, _BASE) == data
    given = {"data": written} | ({"block_bytes_max": block_bytes_max} if block_bytes_max else {})
    return case(name, "read", given, found)


def _written(data: bytes) -> list[object]:
    """Its parts that stand in the base, with a long row of zeros written once."""
    start = data.find(bytes(_ZEROS_MIN))
    if start < 0:
        return sliced(_BASE, data)
    end = start + _ZEROS_MIN
    while data[end] == 0:
        end += 1
    return [*sliced(_BASE, data[:start]), repeat("00", end - start), *sliced(_BASE, data[end:])]


def _members(data: bytes) -> dict[str, object]:
    reader = LogReader(io.BytesIO(data).read, lambda *_: None)
    loaded = reader.rest_untrusted(reader.manifest_untrusted())
    return {
        "run_id": loaded.signed.manifest.run_id.hex(),
        "statements": len(loaded.replica.ledger.roster.statements()),
        "records": loaded.records,
        "updates": loaded.replica.ledger.updates,
        "root": loaded.replica.ledger.root().hex(),
        "state_digest": loaded.replica.state_digest().hex(),
        "writer": loaded.writer.hex(),
        "basis": hashlib.sha256(loaded.basis).hexdigest() if loaded.basis else "",
    }


def _good() -> Iterator[Case]:
    for name, log in {"a void slot": PLAIN, "statements": INVITED, "a dense core": DENSE}.items():
        yield _read(f"good: {name}", log, None)
    yield _read("good: no record", log_of(sign_manifest(EXAMPLE, OWNER), []), None)
    long = run({}, steps=512)
    yield _read("good: no horizon", log_of(sign_manifest(long, OWNER), _rows(long, (1, 511))), None)
    rows = [seal(_INVITED, 1, 3), seal(_INVITED, 3, 20)]
    twice = [*(each for each in _SAID if each[0] != 3), claim(_INVITED, 2, 1), claim(_INVITED, 2, 2)]
    signed = sign_manifest(_INVITED, OWNER)
    yield _read("good: two claims of one token", log_of(signed, rows[:1], twice), None)
    split = PLAIN.without(1)
    for row in range(5):
        split = split.with_block(1 + row, Block(RECORDS, PLAIN.blocks[1].body[110 * row : 110 * (row + 1)]))
    yield _read("good: a block for each record", split, None)
    apart = INVITED.with_body(1, _SAID[0]).with_block(2, Block(STATEMENTS, b"".join(_SAID[1:])))
    yield _read("good: statements in two blocks", apart, None)
    parts = DENSE.with_body(1, FILE[:1]).with_block(2, Block(BASIS, FILE[1:]))
    yield _read("good: a basis in parts", parts, None)
    yield _read("good: a block at its bound", PLAIN, None, block_bytes_max=len(PLAIN.blocks[1].body))


def _beginnings() -> Iterator[Case]:
    good = PLAIN.encode()
    for name, data in {
        "nothing": b"",
        "15 bytes": good[:15],
        "another letter": b"S" + good[1:],
        "another version": good.replace(b"log/1", b"log/2", 1),
        "no zeros": good[:15] + b"\1" + good[16:],
    }.items():
        yield _read(f"rule 9.4.1: {name}", data)


def _blocks() -> Iterator[Case]:
    """Rule 9.4.2, with checks that fit."""
    manifest, records = PLAIN.blocks
    rows, said = _rows(EXAMPLE, (1, 0)), exclude(EXAMPLE, 1, 7)
    order = {
        "no manifest": PLAIN.without(0),
        "records first": PLAIN.with_block(0, records),
        "the manifest twice": PLAIN.with_block(1, manifest),
        "kind 0": PLAIN.with_block(1, Block(0, b"x")),
        "kind 6": DENSE.with_block(3, Block(6, FILE)),
        "kind 7": PLAIN.with_block(2, Block(7, b"x")),
        "a basis where it is random": PLAIN.with_block(1, Block(BASIS, FILE)),
        "statements after records": INVITED.without(1).with_block(2, INVITED.blocks[1]),
        "an exclusion after the records": log_of(sign_manifest(EXAMPLE, OWNER), rows, [said])
        .without(1)
        .with_block(2, Block(STATEMENTS, said)),
        "a basis after records": DENSE.without(1).with_block(2, DENSE.blocks[1]),
        "a second basis": DENSE.with_block(2, DENSE.blocks[1]),
        "no basis": DENSE.without(1),
        "a block of no bytes": PLAIN.with_block(2, Block(RECORDS, b"")),
        "a basis part of no bytes": DENSE.with_block(1, Block(BASIS, b"")),
        "a manifest of no bytes": PLAIN.with_body(0, b""),
    }
    for name, log in order.items():
        yield _read(f"rule 9.4.2: {name}", log)
    yield _read("rule 9.4.2: a block over its bound", PLAIN, block_bytes_max=len(records.body) - 1)
    yield _read("rule 9.4.2: statements over their bound", INVITED, block_bytes_max=len(INVITED.blocks[1].body) - 1)
    yield _read("rule 9.4.2: a block of 2^20 bytes is none too many", PLAIN.with_body(1, bytes(1 << 20)), "SIZE")
    yield _read("rule 9.4.2: a block of 2^20 + 1 bytes", PLAIN.with_body(1, bytes((1 << 20) + 1)))
    good = PLAIN.encode()
    for name, length in {
        "after the head": 16,
        "in a length": 19,
        "in a body": 400,
        "in a check": len(good) - 1,
    }.items():
        yield _read(f"rule 9.4.2: cut off {name}", good[:length])
    yield _read("rule 9.4.2: no end", good[: -(5 + 176 + 32)])
    yield _read("rule 9.4.2: an end of 175 bytes", replace(PLAIN, changed_end=lambda body: body[:-1]))
    yield _read("rule 9.4.2: an end of 177 bytes", replace(PLAIN, changed_end=lambda body: body + b"\0"))


def _bases() -> Iterator[Case]:
    yield _read("rule 9.4.2: a basis part beyond its length", DENSE.with_body(1, FILE + b"\0"))
    yield _read("rule 9.4.2: half of a basis", DENSE.with_body(1, FILE[:20]))
    yield _read("rule 9.4.4: another basis", DENSE.with_body(1, FILE[:-1] + b"\0"), "BASIS")


def _checks() -> Iterator[Case]:
    good, body = PLAIN.encode(), 16 + 5 + len(PLAIN.blocks[0].body) + 32 + 5
    yield _read("rule 9.4.3: a check of zeros", replace(PLAIN, change_check=1))
    yield _read(
        "rule 9.4.3: a flipped bit in a record", good[: body + 9] + bytes([good[body + 9] ^ 1]) + good[body + 10 :]
    )
    yield _read(
        "rule 9.4.3: a flipped bit in a check", good[: body - 9] + bytes([good[body - 9] ^ 1]) + good[body - 8 :]
    )
    yield _read("rule 9.4.3: another kind", good[: body - 5] + bytes([STATEMENTS]) + good[body - 4 :])
    tail = 5 + 176 + 32
    other = log_of(sign_manifest(EXAMPLE, OWNER), _rows(EXAMPLE, (1, 1))).encode()
    yield _read("rule 9.4.3: the end of another log", good[:-tail] + other[-tail:])


def _parts() -> Iterator[Case]:
    """Rule 9.4.4: what each part must be by itself."""
    forged = PLAIN.blocks[0].body[:-3] + b"00\n"
    yield _read("rule 9.4.4: a manifest that the owner did not sign", PLAIN.with_body(0, forged), "MANIFEST_SIGNATURE")
    yield _read("rule 9.4.4: no manifest", PLAIN.with_body(0, b"{}\n" + b"0" * 128 + b"\n"), "MANIFEST_FIELD")
    rows = PLAIN.blocks[1].body
    yield _read("rule 9.4.4: a record cut by the end of a block", PLAIN.with_body(1, rows[:-1]), "SIZE")
    forged = rows[:-1] + bytes([rows[-1] ^ 1])
    yield _read("rule 9.4.4: a record that nobody signed", PLAIN.with_body(1, forged), "SIGNATURE")
    said = INVITED.blocks[1].body
    yield _read(
        "rule 9.4.4: a statement cut by the end of a block", INVITED.with_body(1, said[:-1]), "STATEMENT_FORMAT"
    )
    forged = said[:-1] + bytes([said[-1] ^ 1])
    yield _read("rule 9.4.4: a statement that nobody signed", INVITED.with_body(1, forged), "STATEMENT_SIGNATURE")
    unknown = PLAIN.with_block(1, Block(STATEMENTS, admit(EXAMPLE, 1)))
    yield _read("rule 9.4.4: a statement of a kind that the run does not know", unknown, "STATEMENT_FORMAT")


def _orders() -> Iterator[Case]:
    """Rule 9.4.5: what no ledger of the records before would keep."""
    rows = [PLAIN.blocks[1].body[place : place + 110] for place in range(0, 550, 110)]
    wrong = {
        "steps that descend": [rows[0], rows[3], rows[1]],
        "a record twice": [*rows, rows[4]],
        "one step, bytes that descend": [rows[1], rows[0], *rows[2:]],
        "a record twice, the other version between": sorted([rows[0], rows[1], rows[0]]),
    }
    for name, chosen in wrong.items():
        yield _read(f"rule 9.4.5: {name}", PLAIN.with_body(1, b"".join(chosen)))
    versions = sorted(seal(EXAMPLE, 1, 0, value) for value in (1, 2, 3))
    yield _read("rule 9.4.5: a third version of a slot", PLAIN.with_body(1, b"".join(versions)))
    apart = PLAIN.with_body(1, b"".join(rows[2:])).with_block(2, Block(RECORDS, rows[0]))
    yield _read("rule 9.4.5: steps that descend from block to block", apart)
    said = _SAID
    for name, chosen in {
        "statements that descend": [said[1], said[0], *said[2:]],
        "a statement twice": [said[0], *said],
        "an exclusion that says less": [*said[:2], said[2], exclude(_INVITED, 2, 10), *said[3:]],
        "three claims of one token": [*said, claim(_INVITED, 1, 1), claim(_INVITED, 1, 2)],
    }.items():
        yield _read(f"rule 9.4.5: {name}", INVITED.with_body(1, b"".join(chosen)))
    for name, row in {
        "an author who is not admitted": seal(_INVITED, 4, 30),
        "an author who is excluded": seal(_INVITED, 2, 30),
    }.items():
        body = INVITED.blocks[2].body + row
        yield _read(f"rule 9.4.5: a record of {name}", INVITED.with_body(2, body))
    few = run({}, authors_max=1)
    crowded = log_of(sign_manifest(few, OWNER), [seal(few, 1, 0)])
    yield _read(
        "rule 9.4.5: more authors than the run may have", crowded.with_body(1, crowded.blocks[1].body + seal(few, 2, 1))
    )


def _ends() -> Iterator[Case]:
    totals = PLAIN.totals
    wrong: dict[str, Log] = {
        "a record more than there are": PLAIN.says(totals._replace(records=totals.records + 1)),
        "an update less than there are": PLAIN.says(totals._replace(updates=totals.updates - 1)),
        "another root": PLAIN.says(totals._replace(root=bytes(32))),
        "another state digest": PLAIN.says(totals._replace(state=bytes(32))),
        "a writer who did not sign": PLAIN.says(totals._replace(writer=signer(1).author)),
        "a writer whose key is not valid": PLAIN.says(totals._replace(writer=_SMALL_ORDER)),
        "a writer's key of mixed order, the signature alone would pass": replace(
            PLAIN.says(totals._replace(writer=edwards.mixed_key())), sign=edwards.sign_mixed
        ),
        "a signature of zeros": replace(PLAIN, changed_end=lambda body: body[:-64] + bytes(64)),
        "a byte after the end": replace(PLAIN, after=b"\0"),
        "another log after the end": replace(PLAIN, after=PLAIN.encode()),
    }
    for name, log in wrong.items():
        yield _read(f"rule 9.4.6: {name}", log)
    moved = Signer(b"writer".ljust(32, b"."))
    yield _read(
        "rule 9.4.6: signed by another writer, who is named",
        replace(PLAIN.says(totals._replace(writer=moved.author)), sign=moved.sign),
        None,
    )
