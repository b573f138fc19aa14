"""Recounts: the state computed anew in slices, while the ledger changes; no change makes a sound one look wrong."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from protocol import timings
from protocol.errors import Ignore
from protocol.events import DropPeer, Effect, Halt, PeerLeft, Ticked
from protocol.node.node import Node
from protocol.run.manifest import Manifest
from protocol.state import recount
from protocol.state.replica import Replica
from protocol.wire import PeerId
from tests.support.ledgers import MemoryArchive, exclude, seal, signer
from tests.support.manifests import small_manifest
from tests.support.node_cores import MANIFEST, OTHER_STATE, X, Y, head_of, join, node, pushed, tell

AUTHORS, STEPS = 5, 2_048
DROPPED = DropPeer(peer=X, reason="its state digest does not follow from its ledger")


def long_run(epoch_steps: int) -> Manifest:
    """Two spans."""
    return small_manifest(epoch_steps=epoch_steps, clip=100, steps=STEPS)


def filled(manifest: Manifest, archive: MemoryArchive | None = None, updates: int = 100) -> Replica:
    replica = Replica(manifest, archive, in_memory_max=50)
    for number in range(updates):
        take(replica, seal(manifest, number % AUTHORS, number * 20 % manifest.steps), archive)
    return replica


def take(replica: Replica, record: bytes, archive: MemoryArchive | None) -> None:
    with suppress(Ignore):
        replica.add(record)
        if archive:
            archive.store([record])


def is_sound(replica: Replica, *, is_whole: bool = True) -> bool:
    found = replica.begin_recount(is_whole=is_whole)
    while (verdict := found.advance()) is None:
        pass
    return verdict


# --- the recount alone


@pytest.mark.slow
@pytest.mark.parametrize("epoch_steps", [16, 512, 1_536, STEPS])
@pytest.mark.parametrize("has_archive", [False, True])
def test_recount__ledger_changes_between_any_two_slices__sound_state_is_found_sound(
    epoch_steps: int, has_archive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recount, "_SLICE_COST", 64)
    monkeypatch.setattr(recount, "_SLICES_PER_TICK", 1_000)
    manifest, archive = long_run(epoch_steps), MemoryArchive() if has_archive else None
    chance, replica = random.Random(epoch_steps), filled(manifest, archive)
    found, slices = replica.begin_recount(is_whole=True), 0
    while (verdict := found.advance()) is None:
        slices += 1
        for _ in range(chance.randrange(4)):
            change(replica, chance, archive)
        replica.sum_some(chance.randrange(4))
    assert verdict and slices > 50
    assert replica.ledger.void_slots > 0 and replica.ledger.roster.excluded()
    assert replica.state_digest() == replica.replayed_digest()


def change(replica: Replica, chance: random.Random, archive: MemoryArchive | None) -> None:
    """Mostly an update, of a new author now and then, or a second payload; rarely an exclusion, from some step on."""
    manifest, author = replica.manifest, chance.randrange(2 * AUTHORS)
    if chance.random() < 0.02:
        with suppress(Ignore):
            replica.add_statement(exclude(manifest, author, chance.randrange(1_000, STEPS)))
    take(replica, seal(manifest, author, chance.randrange(STEPS // 4) * 4, chance.randrange(1, 100)), archive)


def test_recount__coefficient_changed_in_memory__shows_without_a_look_at_the_ledger() -> None:
    replica = filled(long_run(512), archive := MemoryArchive())
    replica.state_digest()
    replica.coefficients()._epochs[1].flat[3] += 1
    read_back = archive.read_back
    assert not is_sound(replica, is_whole=False) and archive.read_back == read_back


def test_recount__coefficient_wrong_since_it_was_summed__shows_when_the_ledger_is_summed() -> None:
    replica = filled(long_run(512))
    flat = replica.coefficients().flat(2)
    flat[3] ^= 1
    replica.coefficients().set_flat(2, flat)
    assert is_sound(replica, is_whole=False) and not is_sound(replica)


def test_recount__epoch_that_only_the_state_or_only_the_ledger_has__shows() -> None:
    without, beside = filled(long_run(16)), filled(long_run(16))
    for each in (without, beside):
        each.coefficients()
    without.ledger.add(seal(without.manifest, 0, 1_999))  # never summed
    assert not is_sound(without)
    beside.coefficients().set_flat(127, beside.coefficients().flat(127) + 1)
    assert not is_sound(beside)


def test_recount__empty_ledger__is_sound() -> None:
    assert is_sound(Replica(MANIFEST))


def test_recount__each_slice__reads_and_sums_little() -> None:
    archive = MemoryArchive()
    replica = filled(long_run(STEPS), archive, updates=400)
    found, read = replica.begin_recount(is_whole=True), []
    while True:
        before = archive.read_back
        if found.advance() is not None:
            break
        read.append(archive.read_back - before)
    assert len(read) > 2 and max(read) <= 16 * recount._SLICE_COST // recount._READ_COST


# --- the node


def brought(target: Node, peer: PeerId, now_ms: int = 100) -> None:
    """The neighbour has brought a record that was new."""
    tell(target, peer, pushed(seal(target.manifest, 0, target.replica.ledger.updates)), now_ms)


def lie(target: Node, peer: PeerId, now_ms: int) -> list[Effect]:
    """The neighbour says that it has the same ledger and another state; what comes of it."""
    effects = tell(target, peer, head_of(target.replica.ledger, OTHER_STATE), now_ms)
    while target.mismatch.is_at_work:
        now_ms += timings.FLUSH_INTERVAL_MS
        effects += target.handle(Ticked(), now_ms)
    return [effect for effect in effects if isinstance(effect, DropPeer | Halt)]


def test_node__useful_neighbour_with_another_state__is_dropped_when_the_recount_is_through() -> None:
    honest = node(is_training=False)
    join(honest, X)
    brought(honest, X)
    assert tell(honest, X, head_of(honest.replica.ledger, OTHER_STATE), 200) == []
    assert honest.mismatch.is_at_work and honest.rest_ms() == timings.FLUSH_INTERVAL_MS
    assert lie(honest, X, 200) == [DROPPED] and not honest.sync.is_open(X)


def test_node__neighbour_without_news__is_ignored_and_no_record_is_read() -> None:
    """87 bytes under a fresh identity: they once cost a replay of the whole ledger."""
    archive = MemoryArchive()
    honest = Node(MANIFEST, signer(9), node().own_steps._config, filled(MANIFEST, archive, updates=8))
    join(honest, X)
    read_back = archive.read_back
    assert lie(honest, X, 200) == [] and honest.sync.is_open(X) and archive.read_back == read_back


@pytest.mark.parametrize("is_useful", [False, True])
def test_node__own_state_corrupted_in_memory__halts_whoever_says_so(is_useful: bool) -> None:
    broken = node(is_training=False)
    join(broken, X)
    brought(broken, X)
    broken.replica.state_digest()
    broken.replica.coefficients()._epochs[0].flat[3] ^= 1
    join(broken, Y)
    (effect,) = lie(broken, X if is_useful else Y, 200)
    assert isinstance(effect, Halt)


def test_node__own_sum_wrong__halts_when_a_useful_neighbour_says_so() -> None:
    broken = node(is_training=False)
    join(broken, X, Y)
    brought(broken, X)
    flat = broken.replica.coefficients().flat(0)
    flat[3] ^= 1
    broken.replica.coefficients().set_flat(0, flat)
    assert lie(broken, Y, 200) == []
    (effect,) = lie(broken, X, 300)
    assert isinstance(effect, Halt)


@pytest.mark.parametrize("is_useful", [False, True])
def test_node__many_liars_about_the_state__cause_one_recount_a_minute(
    is_useful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recount costs seconds in a long run, and identities cost nothing."""
    honest, begun = node(is_training=False), []
    begin = Replica.begin_recount

    def begin_recount(replica: Replica, *, is_whole: bool) -> recount.Recount:
        begun.append(is_whole)
        return begin(replica, is_whole=is_whole)

    monkeypatch.setattr(Replica, "begin_recount", begin_recount)
    for now_ms in range(1_000, 31_000, 1_000):
        join(honest, peer := PeerId(f"liar{now_ms}"), now_ms=now_ms)
        if is_useful:
            brought(honest, peer, now_ms)
        lie(honest, peer, now_ms)
    assert begun == [is_useful]
    join(honest, X, now_ms=90_000)
    brought(honest, X, 90_000)
    assert lie(honest, X, 90_000) == [DROPPED] and begun == [is_useful, True]


def test_node__liars_without_news__do_not_keep_a_useful_neighbour_from_being_heard() -> None:
    honest = node(is_training=False)
    join(honest, X, Y)
    brought(honest, X)
    tell(honest, Y, head_of(honest.replica.ledger, OTHER_STATE), 200)
    assert honest.mismatch.is_at_work
    assert lie(honest, X, 201) == [DROPPED]


def test_node__liar_leaves_before_the_recount_is_through__nobody_is_dropped() -> None:
    honest = node(is_training=False)
    join(honest, X)
    brought(honest, X)
    tell(honest, X, head_of(honest.replica.ledger, OTHER_STATE), 200)
    honest.handle(PeerLeft(peer=X), 210)
    assert lie(honest, X, 220) == [] and not honest.mismatch.is_at_work
