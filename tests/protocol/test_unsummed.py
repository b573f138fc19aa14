"""Old updates that come, or become void, in many epochs at once: few epochs are changed and hashed at a time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from protocol.crypto import hashing
from protocol.crypto.hashing import Digest, hash_pieces
from protocol.state import replica as summing
from protocol.state.replica import Replica
from tests.support.ledgers import exclude, seal
from tests.support.manifests import small_manifest

MANIFEST = small_manifest(steps=160, epoch_steps=8)
EPOCHS = 20


@pytest.fixture
def voided(monkeypatch: pytest.MonkeyPatch) -> Replica:
    """A slot of each epoch has become void, and a tick may change two epochs."""
    monkeypatch.setattr(summing, "_COEFFICIENTS_PER_TICK", 1)
    replica = Replica(MANIFEST)
    for step in range(160):
        replica.add(seal(MANIFEST, 1, step))
    replica.state_digest()
    for epoch in range(EPOCHS):
        replica.add(seal(MANIFEST, 1, 8 * epoch + 3, 99))
    return replica


def test_replica__voids_in_many_epochs__changes_two_of_them_a_tick(voided: Replica) -> None:
    before = voided.shown().revisions()  # takes the first two out
    for tick in range(EPOCHS // 2 - 2):
        assert not voided.is_summed, tick
        voided.tick()
        after = voided._coefficients.revisions()
        assert sum(after[epoch] != before[epoch] for epoch in after) == 2
        before = after
    assert voided.is_summed and voided.unsummed == 2
    assert voided.state_digest() == voided.replayed_digest()


def test_replica__excluded_author_not_yet_subtracted__is_not_said_to_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node measures in that moment is of neither model: by this mark it counts for none."""
    monkeypatch.setattr(summing, "_COEFFICIENTS_PER_TICK", 1)
    replica = Replica(MANIFEST)
    for step in range(0, 160, 8):
        replica.add(seal(MANIFEST, 1, step))
    replica.state_digest()
    replica.add_statement(exclude(MANIFEST, 1, 3))
    marks = [list(replica.shown().removals) for _ in range(EPOCHS // 2)]
    assert marks == [[]] * (EPOCHS // 2 - 1) + [replica.ledger.roster.removals()] != [[]] * (EPOCHS // 2)


def test_replica__epochs_at_rest__are_hashed_before_the_digest_is_asked_for(
    voided: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def counting(domain: str, length: int, pieces: Iterable[memoryview]) -> Digest:
        hashed.append(domain)
        return hash_pieces(domain, length, pieces)

    while not voided.is_summed:
        voided.tick()
    monkeypatch.setattr(hashing, "hash_pieces", counting)
    voided.state_digest()
    assert 0 < hashed.count("sfnode/epoch/1") <= 6  # two that waited, and four that are open


def test_replica__voids_before_their_updates_are_summed__leave_nothing() -> None:
    replica = Replica(MANIFEST)
    for step in range(0, 160, 3):
        replica.add(seal(MANIFEST, 1, step))
        replica.add(seal(MANIFEST, 1, step, 99))
        replica.sum_some(step % 4)
    assert replica.unsummed > 0
    assert replica.state_digest() == replica.replayed_digest()
    assert (replica.ledger.updates, replica.ledger.void_slots) == (0, 54)
