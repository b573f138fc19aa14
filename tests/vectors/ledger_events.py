"""Plays events on a real replica and writes down what happened: the building block of the ledger vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from protocol import limits
from protocol.crypto.hashing import Author, hash_fields, u32
from protocol.errors import Ignore, Reject
from protocol.ledger.digest_buckets import bits_of
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.wire import AuthorHoldings
from tests.vectors.notation import judged

Event: TypeAlias = dict[str, Any]
_VALUES_MAX = 40  # coefficients written out per epoch; the digest covers them all


class Player:
    """One run: a ledger that was empty, and the events so far."""

    def __init__(self, manifest: Manifest, records: Sequence[bytes], statements: Sequence[bytes] = ()) -> None:
        self._records = records
        self._statements = statements
        self.replica = Replica(manifest)
        self.events: list[Event] = []

    def add(self, *indices: int, expect: str = "ACCEPT", horizon: int | None = None) -> Player:
        """Add records; ``expect``: the verdict, or the reason of a REJECT or IGNORE, that is meant for each of them."""
        for index in indices:
            verdict, reason = self._verdict(self._records[index], horizon)
            assert (reason or verdict) == expect, (index, verdict, reason, expect)
            self.events.append({"add": index, "horizon_step": horizon, "verdict": verdict, "reason": reason})
        return self

    def add_any(self, *indices: int) -> Player:
        """Add records, whatever the verdict."""
        for index in indices:
            verdict, reason = self._verdict(self._records[index], None)
            self.events.append({"add": index, "horizon_step": None, "verdict": verdict, "reason": reason})
        return self

    def state(self, *indices: int, expect: str = "ACCEPT") -> Player:
        """Take statements in; ``expect`` as for :meth:`add`."""
        for index in indices:
            found = judged(lambda index=index: self._take(index))  # type: ignore[misc]
            assert (found["reason"] or found["verdict"]) == expect, (index, found, expect)
            self.events.append({"state": index, **found})
        return self

    def _take(self, index: int) -> dict[str, Any]:
        self.replica.add_statement(self._statements[index])
        return {}

    def look(self, *, spans: bool = False) -> Player:
        """Write down what is held; ``spans``: every digest of the ledger too."""
        self.events.append({"look": look(self.replica, spans=spans)})
        return self

    def _verdict(self, record: bytes, horizon: int | None) -> tuple[str, str | None]:
        try:
            _, voided = self.replica.add(record, horizon_step=horizon)
        except Reject as reject:
            return "REJECT", reject.reason.name
        except Ignore as ignore:
            return "IGNORE", ignore.reason.name
        return ("ACCEPT" if voided is None else "VOID"), None


def look(replica: Replica, *, spans: bool) -> dict[str, Any]:
    """The member ``look`` of an event."""
    ledger, digest = replica.ledger, replica.state_digest()
    assert digest == replica.replayed_digest()
    found = {
        "updates": ledger.updates,
        "void_slots": ledger.void_slots,
        "root": ledger.root().hex(),
        "state_digest": digest.hex(),
        "epochs": _epochs(replica),
    }
    return found | {"spans": _spans(ledger)} if spans else found


def _epochs(replica: Replica) -> list[dict[str, Any]]:
    coefficients, found, fields = replica.coefficients(), [], []
    for epoch in coefficients.epochs():
        flat = coefficients.flat(epoch)
        digest = hash_fields("sfnode/epoch/1", flat.astype("<i8").tobytes())
        fields += [u32(epoch), digest]
        positions = flat.nonzero()[0].tolist()
        values = [[position, str(flat[position])] for position in positions[:_VALUES_MAX]]
        found.append({"epoch": epoch, "digest": digest.hex(), "size": len(flat), "values": values})
    assert hash_fields("sfnode/state/1", replica.manifest.run_id, *fields) == coefficients.digest()
    return found


def _spans(ledger: Ledger) -> list[dict[str, Any]]:
    return [
        {"span": span, "digest": digest.hex(), "shards": _shards(ledger, span)}
        for span, digest in ledger.slots.span_digests()
    ]


def _shards(ledger: Ledger, span: int) -> list[dict[str, Any]]:
    return [
        {
            "shard": shard,
            "digest": digest.hex(),
            "authors": [
                _author(ledger, span, holdings)
                for holdings in ledger.slots.holdings(span, frozenset({shard}), bytes(32), limits.AUTHORS_MAX)
            ],
        }
        for shard, digest in ledger.slots.shard_digests(span)
    ]


def _author(ledger: Ledger, span: int, holdings: AuthorHoldings) -> dict[str, Any]:
    def steps(bitmap: bytes) -> list[int]:
        return [span * limits.SPAN_STEPS + bit for bit in bits_of(int.from_bytes(bitmap, "little"))]

    return {
        "author": holdings.author.hex(),
        "digest": holdings.digest.hex(),
        "valid": steps(holdings.valid),
        "void": steps(holdings.void),
        "payload_hashes": [
            value.hex() for value in ledger.slots.payload_hashes(span, Author(holdings.author)).values()
        ],
    }
