"""Vectors of who attests which snapshot (SPEC 9.5): what is kept of it, and the file on which enough authors agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import patch

from protocol import limits
from protocol.errors import Ignore, Reject
from protocol.ledger.statements import StatementCodec
from protocol.node.snapshot_agreement import AttestationTable
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec
from protocol.wire import PeerId
from tests.support.ledgers import admit, exclude, seal, signer
from tests.support.manifests import OWNER
from tests.vectors.notation import Case, Document, case, document
from tests.vectors.runs import run, texts

_LISTED = run({}, admission={"kind": "allow-list", "pow_bits": 0}, steps=4_096)
_OPEN = run({}, steps=4_096)
_RUNS = {"listed": _LISTED, "open": _OPEN}
_HASHES = [bytes([number]) * 32 for number in range(3)]


def attestations() -> Document:
    """attestations.json"""
    groups = (_live, _tellers, _agreed, _admitted)
    about = "Attestations of snapshots: which are kept, and on which file enough authors agree: SPEC 9.5"
    return document(about, [made for group in groups for made in group()], manifests=texts(_RUNS))


def _attest(manifest: Manifest, author: int, step: int = 1_024, file: int = 0) -> bytes:
    return AttestationCodec(manifest).attest(signer(author), step, 92 + file, _HASHES[file]).data


class _Table:
    """A node's attestations, and the events so far."""

    def __init__(
        self,
        manifest: Manifest,
        said: Sequence[bytes],
        *,
        records: Sequence[bytes] = (),
        statements: Sequence[bytes] = (),
        most: int = limits.ATTESTATIONS_MAX,
        most_by_teller: int = limits.ATTESTATIONS_PER_TELLER_MAX,
    ) -> None:
        self._most, self._most_by_teller = most, most_by_teller
        given = {"records": records, "statements": statements, "attestations": said}
        self._given = {name: [data.hex() for data in listed] for name, listed in given.items()}
        self._said, self._records, self._statements = said, records, statements
        self._replica = Replica(manifest)
        self._table = AttestationTable(manifest, self._replica.ledger)
        self._events: list[dict[str, object]] = []

    def add(self, *indices: int) -> _Table:
        """Records come."""
        for index in indices:
            self._replica.add(self._records[index])
            self._events.append({"add": index})
        return self

    def state(self, *indices: int) -> _Table:
        """Statements come."""
        for index in indices:
            self._replica.add_statement(self._statements[index])
            self._events.append({"state": index})
        return self

    def attest(self, *indices: int, teller: str | None = None, expect: str | None = None) -> _Table:
        """Attestations come; ``teller``: from this neighbour, to a node that is not live."""
        for index in indices:
            verdict, reason = "ACCEPT", None
            try:
                with patch.multiple(
                    limits, ATTESTATIONS_MAX=self._most, ATTESTATIONS_PER_TELLER_MAX=self._most_by_teller
                ):
                    self._table.add(self._said[index], teller=None if teller is None else PeerId(teller))
            except Reject as reject:
                verdict, reason = "REJECT", reject.reason.name
            except Ignore as ignore:
                verdict, reason = "IGNORE", ignore.reason.name
            assert reason == expect, (index, reason, expect)
            self._events.append({"attest": index, "teller": teller, "verdict": verdict, "reason": reason})
        return self

    def leave(self, teller: str) -> _Table:
        """A neighbour goes."""
        self._table.forget(PeerId(teller))
        self._events.append({"leave": teller})
        return self

    def look(self, authors_min: int = 3) -> _Table:
        """What a neighbour that asks is told, as a set, and the file on which enough authors agree."""
        agreed = self._table.agreed(authors_min)
        found: dict[str, object] = {"told": sorted(self._said.index(data) for data in self._table.page())}
        found["agreed"] = sorted(self._said.index(each.data) for each in agreed)
        self._events.append({"look": {"authors_min": authors_min, **found}})
        return self

    def case(self, name: str, manifest: str) -> Case:
        """The case of these events."""
        most = {"attestations_max": self._most, "attestations_per_teller_max": self._most_by_teller}
        return case(name, "table", {"manifest": manifest, **self._given, **most}, {"events": self._events})


def _rows(manifest: Manifest, *authors: int) -> list[bytes]:
    return [seal(manifest, author, 0) for author in authors]


def _live() -> Iterator[Case]:
    said = [
        _attest(_OPEN, 1),
        _attest(_OPEN, 1, 2_048),
        _attest(_OPEN, 2),
        _attest(_OPEN, 3),
        _attest(_OPEN, 1, 1_024, 1),
    ]
    said += [said[2][:-1] + bytes([said[2][-1] ^ 1]), said[0][:-1], _attest(_OPEN, 4)]
    rows = _rows(_OPEN, 1, 2, 3, 4)
    table = _Table(_OPEN, said, records=rows).attest(0, 5, expect="NOT_ADMITTED").attest(6, expect="SNAPSHOT_FORMAT")
    table.add(0, 1).attest(0).attest(0, 4, expect="ALREADY_HELD").attest(5, expect="SIGNATURE").attest(2).look()
    table.attest(1).attest(0, 1, expect="ALREADY_HELD").look().attest(3, expect="NOT_ADMITTED").add(2).attest(3).look()
    yield table.case("a live node: who contributes, and the newest of each", "open")
    full = (
        _Table(_OPEN, said, records=rows, most=2).add(0, 1, 2, 3).attest(0, 2).attest(3, 7, expect="ATTESTATIONS_FULL")
    )
    full.attest(0, expect="ALREADY_HELD").attest(1).look()
    yield full.case("a full table takes newer ones of the authors that it has", "open")
    bad = said[3][:-1] + bytes([said[3][-1] ^ 1])
    order = _Table(_OPEN, [said[0], bad], records=_rows(_OPEN, 1, 3), most=1).add(0, 1).attest(0)
    yield order.attest(1, expect="ATTESTATIONS_FULL").case("order: full before signature", "open")


def _tellers() -> Iterator[Case]:
    """A node that is not live keeps apart what each neighbour tells."""
    said = [_attest(_OPEN, number) for number in range(4)] + [_attest(_OPEN, 0, 2_048)]
    said += [said[1][:-1] + bytes([said[1][-1] ^ 1])]
    rows = _rows(_OPEN, 0, 1, 2, 3)
    table = _Table(_OPEN, said, records=rows, most_by_teller=2).attest(5, teller="a", expect="SIGNATURE")
    table.attest(0, 1, teller="a").attest(2, teller="a", expect="ATTESTATIONS_FULL").attest(
        0, teller="a", expect="ALREADY_HELD"
    )
    table.attest(0, 2, teller="b").attest(3, teller="b", expect="ATTESTATIONS_FULL").attest(4, teller="b").look()
    table.leave("a").look().attest(1, teller="c").look().leave("b").leave("c").look()
    yield table.case("two of each teller, until it leaves", "open")
    kept = _Table(_OPEN, said, records=rows).attest(0, 1, 4, teller="a").add(0).leave("a").look()
    kept.attest(0, teller="b", expect="ALREADY_HELD").attest(1, teller="b").look()
    yield kept.case("what contributors attest stays when its teller leaves", "open")


def _agreed() -> Iterator[Case]:
    """At least so many, and more than half of all who attest that step or a later one."""
    one = [_attest(_OPEN, number) for number in range(4)]
    other = [_attest(_OPEN, number, 1_024, 1) for number in range(4, 8)]
    later = [_attest(_OPEN, number, 2_048, 2) for number in range(8)]
    said, rows = [*one, *other, *later], _rows(_OPEN, *range(8))
    half = _Table(_OPEN, said, records=rows).add(*range(8)).attest(0, 1).look().look(2).attest(2).look()
    half.attest(4, 5).look().attest(6).look().attest(3).look(4).look(5)
    yield half.case("three of three, of five, of six, and four of seven", "open")
    newest = _Table(_OPEN, said, records=rows).add(*range(8)).attest(0, 1, 2, 3).look().attest(8, 9, 10).look()
    yield newest.attest(12).look().case("an author's newest alone counts, and the greatest step is taken", "open")
    older = _Table(_OPEN, said, records=rows).add(*range(8)).attest(12, 13, 14).look().attest(0, 1, 2, 3).look()
    yield older.case("who attests an earlier step is not asked about a later one", "open")


def _admitted() -> Iterator[Case]:
    said = [_attest(_LISTED, number) for number in (1, 2, 3, 4)]
    codec = StatementCodec(_LISTED)
    statements = [admit(_LISTED, number) for number in (1, 2, 3, 4)] + [exclude(_LISTED, 1, 4_095)]
    statements.append(codec.exclude(OWNER, signer(4).author, 0))
    rows = _rows(_LISTED, 1, 2, 3, 4)
    table = _Table(_LISTED, said, records=rows, statements=statements).attest(0, expect="NOT_ADMITTED").state(0, 1, 2)
    table.attest(0, expect="NOT_ADMITTED").add(0, 1, 2).attest(0, 1, 2).look().state(4).look()
    table.attest(0, expect="NOT_ADMITTED").look(2)
    yield table.case("excluded authors do not count, from whatever step on", "listed")
    early = _Table(_LISTED, said, statements=statements).attest(0, 1, 2, teller="a").look().state(0, 1).look(2)
    yield early.state(2).look().case("a joiner counts those who are admitted, though nothing of them is held", "listed")
    crowded = _Table(_LISTED, said, records=rows, statements=statements, most=2).state(0, 1, 2, 3).add(0, 1, 2, 3)
    crowded.attest(3, 1).attest(0, expect="ATTESTATIONS_FULL").state(5).attest(0).look(2)
    yield crowded.case("those of authors who are excluded give way", "listed")
