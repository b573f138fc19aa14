"""Rare paths of the core that the tests of its parts do not reach: full queues, late news, odd lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import limits, timings
from protocol.crypto.keys import Signer, is_signed
from protocol.events import (
    EstimateLost,
    EstimateSkipped,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    StartEstimate,
    Ticked,
    WorkerReady,
)
from protocol.ledger.ledger import Ledger
from protocol.schema import Malformed, from_plain_untrusted
from protocol.state.coefficients import Coefficients
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import answer
from protocol.sync.comparison_schedule import Synchroniser
from protocol.sync.flood_queues import Flood
from protocol.wire import Head, Message, Payloads, PayloadsRequest, PeerId, Records
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.support.ledgers import admit, claim, ledger_of, seal, signer
from tests.support.manifests import small_manifest
from tests.support.node_cores import MANIFEST, ME, X, Y, head_of, join, node, own, pushed, sent, start_effects, tell
from tests.support.sample_messages import MESSAGES

RECORD_BYTES = 110


def numbered(number: int) -> bytes:
    return number.to_bytes(RECORD_BYTES, "big")[::-1]


# --- flood


def test_send_queue__full__leaves_the_newest_to_anti_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUSH_QUEUE_RECORDS_MAX", 3)
    flood = Flood(RECORD_BYTES)
    flood.open(X)
    for number in range(5):
        flood.push(numbered(number), source=Y)
    ((_, message),) = flood.flush(0)
    assert message.data == b"".join(map(numbered, range(3)))
    flood.push(numbered(7), source=Y)
    assert flood.flush(timings.FLUSH_INTERVAL_MS - 1) == []
    assert len(flood.flush(timings.FLUSH_INTERVAL_MS)) == 1


def test_flood__news_of_a_peer_that_is_gone__changes_nothing() -> None:
    flood = Flood(RECORD_BYTES)
    flood.mark_known(X, numbered(1))
    flood.open(Y)
    flood.push(numbered(1), source=X)
    flood.mark_known(X, numbered(1))
    assert flood.flush(0) == [(Y, Records(request=0, data=numbered(1)))]
    flood.close(X)


def test_flood__ticks_come_late_and_then_in_time__gathers_for_longer_and_then_not() -> None:
    flood = Flood(RECORD_BYTES)
    intervals = []
    for late_ms in (timings.LATE_MS_MAX, *[timings.LATE_MS_MAX + 1] * 4, *[0] * 20):
        flood.adapt(late_ms)
        intervals.append(flood.interval_ms)
    assert intervals[:7] == [50, 100, 200, 400, 400, 375, 350]
    assert intervals[-1] == timings.FLUSH_INTERVAL_MS


def test_flood__machine_is_busy__first_record_goes_at_once_and_the_next_waits_longer() -> None:
    flood = Flood(RECORD_BYTES)
    flood.open(X)
    flood.adapt(100)
    flood.push(numbered(1), source=None)
    assert flood.flush(1_000) == [(X, Records(request=0, data=numbered(1)))]
    flood.push(numbered(2), source=None)
    assert (flood.rest_ms(1_030), flood.flush(1_099)) == (70, [])
    assert flood.flush(1_100) == [(X, Records(request=0, data=numbered(2)))]
    assert flood.rest_ms(1_100) == timings.REST_MS_MAX


def test_node__next_event_waits_already__pushes_after_the_last_and_not_to_who_sent_it_too() -> None:
    relay = node(is_training=False)
    join(relay, X, Y, PeerId("z"))
    record = seal(MANIFEST, 0, 0)
    first = relay.handle(MessageArrived(peer=X, message=pushed(record)), 10, is_last=False)
    last = relay.handle(MessageArrived(peer=Y, message=pushed(record)), 10)
    assert sent(first, Records) == []
    assert sent(last, Records) == [(PeerId("z"), pushed(record))]
    assert relay.intake.ignored["ALREADY_HELD"] == 1


def test_node__nothing_to_do__rests_for_longer_than_while_a_record_waits() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    rests = [relay.rest_ms()]
    for step in range(2):
        tell(relay, X, pushed(seal(MANIFEST, 0, step)), 10)
        rests.append(relay.rest_ms())
    assert rests == [timings.REST_MS_MAX, timings.REST_MS_MAX, timings.FLUSH_INTERVAL_MS]


# --- keys


@pytest.mark.parametrize(("key_bytes", "signature_bytes"), [(31, 64), (33, 64), (0, 64), (32, 63), (32, 65), (32, 0)])
def test_signature__key_or_signature_of_another_length__is_not_valid(key_bytes: int, signature_bytes: int) -> None:
    """libsodium is told no lengths: a shorter key would be read beyond its end."""
    signer = Signer(b"k" * 32)
    signature = signer.sign(b"text")
    assert is_signed(signer.author, b"text", signature)
    assert not is_signed((signer.author * 2)[:key_bytes], b"text", (signature * 2)[:signature_bytes])


# --- manifest, coefficients, structure


def test_epsilon__of_the_manifest__is_a_power_of_two() -> None:
    assert small_manifest(epsilon_exp=-10).epsilon == 1 / 1_024
    assert small_manifest(epsilon_exp=0).epsilon == 1.0


def test_revisions__an_epoch_that_changed__has_another_number() -> None:
    coefficients = Coefficients(MANIFEST)
    envelopes = list(ledger_of(MANIFEST, [seal(MANIFEST, 0, 0), seal(MANIFEST, 0, 16)]).slots.envelopes())
    coefficients.add(envelopes[:1])
    before = coefficients.revisions()
    coefficients.add(envelopes)
    after = coefficients.revisions()
    assert set(before) == {0} and set(after) == {0, 1} and after[0] != before[0]
    coefficients.remove(envelopes)
    coefficients.remove(envelopes[:1])
    assert coefficients.revisions()[0] != after[0] and coefficients.epochs() == ()
    assert coefficients.digest() == Coefficients(MANIFEST).digest()


def test_optional_field__none_a_value_or_another_type__is_told_apart() -> None:
    row: list[object] = ["model", None, "eval", ["cpu", "fp32", None], None, None, None, None, None]
    made = from_plain_untrusted(TrainingConfig, row, "it")
    assert (made.basis, made.data, made.eval_data) == (None, None, Path("eval"))
    with pytest.raises(Malformed, match=r"it\.data: 5 is not of type str"):
        from_plain_untrusted(TrainingConfig, ["model", 5, *row[2:]], "it")


# --- synchroniser


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_node__any_message_of_a_peer_that_is_gone__does_nothing(message: Message) -> None:
    core = node()
    join(core, X, Y)
    core.handle(PeerLeft(peer=X), 10)
    assert tell(core, X, message, 20) == [] and not core.rejected


def test_synchroniser__heads_of_several__target_is_the_largest_and_step_the_lower_median() -> None:
    synchroniser = Synchroniser(Ledger(MANIFEST))
    for number, (updates, step) in enumerate([(5, 30), (9, 10), (2, 20), (7, 25)]):
        peer = PeerId(str(number))
        synchroniser.open(peer)
        head = Head(root=bytes(32), state_digest=bytes(32), updates=updates, step=step, work_distance=0)
        synchroniser.receive_head(peer, head, 0, None)
    assert (synchroniser.target_updates, synchroniser.head_step) == (9, 20)
    synchroniser.close(PeerId("1"))
    assert (synchroniser.target_updates, synchroniser.head_step) == (7, 25)


def test_answer__payload_hashes_of_an_author_that_is_not_held__are_empty() -> None:
    request = PayloadsRequest(request=7, span=3, author=ME.author)
    (reply,) = answer(Ledger(MANIFEST), request)
    assert reply == Payloads(request=7, span=3, author=ME.author, hashes=b"")


# --- node

# So many cores in an update that a tick sums 16 of them.
COSTLY = small_manifest(steps=640, core="rademacher", directions=16, local_steps=64, epoch_steps=64)


@pytest.mark.parametrize("event", [EstimateSkipped(step=5), EstimateLost(step=5)], ids=["skipped", "lost"])
def test_node__news_of_a_step_that_it_does_not_measure__changes_nothing(event: EstimateSkipped | EstimateLost) -> None:
    working = node()
    assert working.handle(WorkerReady(), 10) == start_effects(0)
    assert working.handle(event, 20) == []
    assert (working.own_steps.estimating, working.own_steps.skipped, working.clock.next_step) == (0, 0, 0)


def test_node__many_updates_wait_to_be_summed__tells_its_head_without_the_state_digest() -> None:
    """Right after a large page, or many void slots, it would cost a long computation; the root costs nothing."""
    busy = node(manifest=COSTLY, is_training=False)
    join(busy, X)
    for author in range(4):
        tell(busy, X, pushed(*(seal(COSTLY, author, step) for step in range(0, 640, 64))), 10)
    told = []
    for number in range(3):
        ((_, head),) = sent(busy.handle(Ticked(), timings.HEAD_INTERVAL_MS * (number + 1)), Head)
        assert isinstance(head, Head) and head.root == busy.replica.ledger.root()
        told.append((busy.replica.unsummed, head.state_digest))
    digest = busy.replica.replayed_digest()
    assert told == [(27, bytes(32)), (14, bytes(32)), (0, digest)]


def test_node__peer_joins_while_updates_wait_to_be_summed__is_told_the_head_at_once() -> None:
    busy = node(manifest=COSTLY, is_training=False)
    join(busy, X)
    for author in range(2):
        tell(busy, X, pushed(*(seal(COSTLY, author, step) for step in range(0, 640, 64))), 10)
    ((peer, head),) = sent(busy.handle(PeerJoined(peer=PeerId("late")), 11), Head)
    assert isinstance(head, Head) and (peer, head.state_digest) == ("late", bytes(32))


def test_node__neighbour_that_has_not_summed_yet__is_no_mismatch() -> None:
    summed = node(records=[seal(MANIFEST, 0, 0)])
    join(summed, X)
    assert not tell(summed, X, head_of(summed.replica.ledger, bytes(32)), 10)
    assert summed.sync.is_live and summed.sync.is_open(X)


def test_node__own_old_records_come_while_it_waits__never_signs_their_rounds() -> None:
    waiting = node(expects_peers=True)
    waiting.handle(WorkerReady(), 10)
    join(waiting, X, now_ms=20)
    tell(waiting, X, pushed(own(0), own(3)), 30)
    effects = waiting.handle(Ticked(), 20 + timings.FIRST_SYNC_TIMEOUT_MS)
    started = [effect.step for effect in effects if isinstance(effect, StartEstimate)]
    assert started == [4]


def test_replica__token_void_then_admitted_when_the_author_table_is_full__has_no_place() -> None:
    """SPEC 7.7: who comes back is judged like anybody who comes."""
    manifest = small_manifest(admission="invite", authors_max=1)
    replica = Replica(manifest)
    replica.add_statement(claim(manifest, 1, 1))
    replica.add(seal(manifest, 1, 0))
    replica.add_statement(claim(manifest, 1, 2))
    assert replica.suspended == 1
    replica.add_statement(admit(manifest, 3))
    replica.add(seal(manifest, 3, 0))
    replica.add_statement(admit(manifest, 1))
    assert (replica.ledger.updates, replica.suspended) == (1, 0)
    assert replica.ledger.authors() == {signer(3).author: 0}
