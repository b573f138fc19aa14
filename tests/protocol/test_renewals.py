"""A published basis that the owner renews: statements, what a set of them means, and what a ledger makes of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from protocol.crypto.keys import Signer
from protocol.errors import Ignore, RejectReason
from protocol.ledger.roster import Roster
from protocol.ledger.statements import StatementCodec, StatementKind
from protocol.state.replica import Replica
from tests.protocol.test_statements import reason_of
from tests.support.ledgers import renew, seal
from tests.support.manifests import PUBLISHED_BASIS, small_manifest

OPEN = small_manifest()
THIEF = Signer(b"thief".ljust(32, b"."))


def test_renewal__of_a_run_with_a_random_basis__is_rejected() -> None:
    assert reason_of(OPEN, renew(OPEN, 1)) is RejectReason.STATEMENT_FORMAT


@pytest.mark.parametrize("kind", ["open", "allow-list", "invite"])
def test_renewal__whatever_the_admission__has_the_fields_that_were_signed(kind: str) -> None:
    manifest = small_manifest(admission=kind, **PUBLISHED_BASIS)
    last = -(-manifest.steps // manifest.method.epoch_steps) - 1
    found = StatementCodec(manifest).decode_untrusted(renew(manifest, last, "5f"))
    assert (found.kind, found.author, found.from_epoch, found.sha256) == (StatementKind.RENEW, b"", last, "5f" * 32)
    assert len(found.data) == 129 and found.key == b"\4" + last.to_bytes(32, "big")
    assert reason_of(manifest, renew(manifest, last)) is None
    for epoch in (0, last + 1):
        assert reason_of(manifest, renew(manifest, epoch)) is RejectReason.STATEMENT_FORMAT
    assert reason_of(manifest, renew(manifest, 1, by=THIEF)) is RejectReason.STATEMENT_SIGNATURE


@given(st.permutations([(1, "bb"), (1, "aa"), (2, "cc"), (2, "aa"), (1, "ab")]))
def test_renewals__in_any_order__mean_the_same(order: list[tuple[int, str]]) -> None:
    manifest = small_manifest(**PUBLISHED_BASIS)
    roster = Roster(manifest)
    for epoch, digits in order:
        with suppress(Ignore):
            roster.add(renew(manifest, epoch, digits))
    assert roster.renewals() == {1: "aa" * 32, 2: "aa" * 32}
    straight = Roster(manifest)
    for epoch in (1, 2):
        straight.add(renew(manifest, epoch, "aa"))
    assert roster.digest() == straight.digest() and roster.statements() == straight.statements()


def test_renewal__in_a_ledger__changes_the_root_and_no_coefficient() -> None:
    manifest = small_manifest(**PUBLISHED_BASIS)
    replica = Replica(manifest)
    replica.add(seal(manifest, 1, 3, 5))
    root, state = replica.ledger.root(), replica.state_digest()
    replica.add_statement(renew(manifest, 1))
    assert replica.ledger.root() != root and replica.state_digest() == state
    assert (replica.ledger.updates, replica.renewals_needed()) == (1, [])
    replica.add(seal(manifest, 1, manifest.method.epoch_steps, 5))
    assert replica.renewals_needed() == ["cd" * 32]
