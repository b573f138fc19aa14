"""Snapshots: their bytes, who attests them, and when a node makes one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from protocol import limits
from protocol.errors import Ignore, IgnoreReason, Reject, RejectReason
from protocol.events import DropPeer, Effect, SendMessage, StoreSnapshot
from protocol.ledger.ledger import Ledger
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.node.snapshot_agreement import AttestationTable
from protocol.node.statistics import node_statistics
from protocol.state import snapshot_proof
from protocol.state.replica import Replica
from protocol.state.snapshot import Attestation, decode_snapshot_untrusted, encode_snapshot
from protocol.state.snapshot_proof import may_fit, take_snapshot
from protocol.wire import Attestations, AttestationsRequest
from tests.support.ledgers import admit, exclude, signer
from tests.support.node_cores import X, Y, join, tell
from tests.support.snapshot_runs import (
    AUTHORS,
    DENSE_RUN,
    JOINER,
    ROUND,
    RUN,
    STEP,
    attest,
    false_snapshot,
    make_live,
    records,
    replica_of,
    run_of,
    true_snapshot,
)

HEAD_BYTES = 92


# --- bytes


@pytest.mark.parametrize("epoch_steps", [16, 1_024, 1_536, 4_096])
def test_snapshot__of_a_ledger__is_what_a_replay_of_the_steps_before_gives(epoch_steps: int) -> None:
    """Whether or not its step ends an epoch."""
    run = run_of(epoch_steps=epoch_steps)
    before = Replica(run)
    for number in AUTHORS:
        before.add_statement(admit(run, number))
    for record in records(run):
        if int.from_bytes(record[32:36], "big") < STEP:
            before.add(record)
    snapshot = true_snapshot(run)
    assert {epoch: flat.tolist() for epoch, flat in snapshot.epochs.items()} == {
        epoch: before.coefficients().flat(epoch).tolist() for epoch in before.coefficients().epochs()
    }
    assert snapshot.slots == before.ledger.updates and snapshot.digest == before.ledger.slots.digest_before(STEP)
    assert snapshot.digest != before.ledger.slots.digest_before(2 * STEP)


def test_snapshot__step_within_an_epoch__decodes_the_rest_of_the_epoch_and_not_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault once: all later updates of the run were decoded to subtract those of one epoch."""
    replica = replica_of()
    codec, rest = replica.ledger.codec, len(AUTHORS) * (RUN.method.epoch_steps - STEP) // ROUND
    replica.coefficients()  # has decoded all that is to be summed
    decode = Mock(side_effect=codec.decode_untrusted)
    monkeypatch.setattr(codec, "decode_untrusted", decode)
    take_snapshot(replica, STEP)
    assert decode.call_count == rest + 1


def test_snapshot__written_and_read__is_the_same_and_takes_few_bytes() -> None:
    snapshot = true_snapshot()
    data = encode_snapshot(RUN, snapshot)
    read = decode_snapshot_untrusted(RUN, data)
    assert (read.step, read.digest, read.slots) == (snapshot.step, snapshot.digest, snapshot.slots)
    assert read.epochs.keys() == snapshot.epochs.keys() == {0}
    assert np.array_equal(read.epochs[0], snapshot.epochs[0]) and encode_snapshot(RUN, read) == data
    assert len(data) == HEAD_BYTES + 5 + 4 * len(snapshot.epochs[0])


@pytest.mark.parametrize("value", [-(1 << 63), -129, -128, -1, 1, 127, 128, 32_767, 32_768, 1 << 31, (1 << 63) - 1])
def test_snapshot__coefficients_of_any_size__take_the_fewest_bytes(value: int) -> None:
    true = true_snapshot()
    flat = np.zeros_like(true.epochs[0], dtype=np.int64)
    flat[3] = value
    snapshot = replace(true, epochs={0: flat})
    data = encode_snapshot(RUN, snapshot)
    width = next(width for width in (1, 2, 4, 8) if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1)
    assert data[HEAD_BYTES + 4] == width
    read = decode_snapshot_untrusted(RUN, data).epochs[0]
    assert (read.tolist(), read.itemsize) == (flat.tolist(), width)  # in memory too


def test_snapshot__whole_epochs_at_their_widths__are_the_least_that_the_file_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault once: they were counted at one byte a coefficient, so files were made to be thrown away."""
    replica = Replica(DENSE_RUN)
    own = replica.coefficients()
    for epoch in range(8):
        own.set_flat(epoch, np.full(own.layout.size, 300))
    own.set_flat(STEP, np.full(own.layout.size, 300))  # beyond
    monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 8 * 2 * own.layout.size - 1)
    assert not may_fit(replica, STEP)
    own.set_flat(3, np.zeros(own.layout.size, dtype=np.int64))
    assert may_fit(replica, STEP)


def bent_snapshots() -> dict[str, tuple[bytes, RejectReason]]:
    good, form = encode_snapshot(RUN, true_snapshot()), RejectReason.SNAPSHOT_FORMAT
    head, epoch = good[:HEAD_BYTES], good[HEAD_BYTES:]
    wide = epoch[:4] + b"\x08" + true_snapshot().epochs[0].astype("<i8").tobytes()
    return {
        "nothing": (b"", form),
        "another beginning": (b"S" + good[1:], form),
        "another run": (good[:16] + bytes(32) + good[48:], RejectReason.RUN_ID),
        "step 0": (good[:48] + bytes(4) + good[52:], form),
        "a step within a span": (good[:48] + b"\0\0\4\1" + good[52:], form),
        "a step beyond the run": (good[:48] + b"\0\0\x10\0" + good[52:], form),
        "cut off": (good[:-1], form),
        "a byte more": (good + b"\0", form),
        "twice the same epoch": (head + epoch + epoch, form),
        "an epoch beyond the step": (head + b"\0\0\0\1" + epoch[4:], form),
        "a width of 3": (head + epoch[:4] + b"\3" + epoch[5:], form),
        "more bytes than needed": (head + wide, form),
        "an epoch of zeros": (head + epoch[:4] + b"\1" + bytes(len(true_snapshot().epochs[0])), form),
    }


@pytest.mark.parametrize("name", bent_snapshots())
def test_snapshot__other_bytes__are_rejected(name: str) -> None:
    data, reason = bent_snapshots()[name]
    with pytest.raises(Reject) as caught:
        decode_snapshot_untrusted(RUN, data)
    assert caught.value.reason is reason


def bent_attestations() -> dict[str, tuple[bytes, RejectReason]]:
    (good,) = attest(true_snapshot(), 1)
    data, form = good.data, RejectReason.SNAPSHOT_FORMAT
    stranger = run_of(admission="open")
    return {
        "a byte less": (data[:-1], form),
        "a step within a span": (data[:32] + b"\0\0\4\1" + data[36:], form),
        "a file of no bytes": (data[:36] + bytes(4) + data[40:], form),
        "a file over the bound": (data[:36] + b"\4\0\0\1" + data[40:], form),
        "no key": (bytes(32) + data[32:], RejectReason.AUTHOR_KEY),
        "another author": (signer(2).author + data[32:], RejectReason.SIGNATURE),
        "another hash": (data[:40] + bytes(32) + data[72:], RejectReason.SIGNATURE),
        "of another run": (attest(true_snapshot(), 1, manifest=stranger)[0].data, RejectReason.SIGNATURE),
    }


@pytest.mark.parametrize("name", bent_attestations())
def test_attestation__forged__is_rejected_and_costs_its_sender_the_session(name: str) -> None:
    data, reason = bent_attestations()[name]
    with pytest.raises(Reject) as caught:
        AttestationTable(RUN, replica_of().ledger).add(data, teller=X)
    assert caught.value.reason is reason
    if len(data) == limits.ATTESTATION_BYTES:
        node = Node(RUN, signer(1), NodeConfig(), replica_of())
        join(node, X, Y)
        effects = tell(node, X, Attestations(attestations=(data,)), 5)
        assert [effect.peer for effect in effects if isinstance(effect, DropPeer)] == [X]


def test_attestation__of_no_use__is_counted_with_updates_and_statements() -> None:
    node = Node(RUN, signer(1), NodeConfig(), replica_of())
    join(node, X)
    data = attest(true_snapshot(), *AUTHORS)[0].data
    tell(node, X, Attestations(attestations=(data, data)), 5)
    assert node.snapshots.ignored == {"ALREADY_HELD": 1} and node_statistics(node).ignored == 1


# --- the table


def table_of(*attestations: bytes, ledger: Ledger | None = None) -> AttestationTable:
    table = AttestationTable(RUN, ledger or replica_of().ledger)
    for data in attestations:
        table.add(data, teller=X)
    return table


def test_quorum__three_of_three__agrees_and_two_do_not() -> None:
    agreeing = attest(true_snapshot(), *AUTHORS)
    assert table_of(*(each.data for each in agreeing[:2])).agreed(3) == []
    found = table_of(*(each.data for each in agreeing)).agreed(3)
    assert {each.author for each in found} == {signer(number).author for number in AUTHORS}
    assert table_of(agreeing[0].data).agreed(1) == [agreeing[0]]


def test_quorum__no_majority_of_those_who_attest__is_none() -> None:
    """Three liars among seven are three authors, and not enough."""
    run_ledger = replica_of().ledger
    for number in (4, 5, 6):
        run_ledger.add_statement(admit(RUN, number))
    honest = [each.data for each in attest(true_snapshot(), 4, 5, 6)]
    lying = [each.data for each in attest(false_snapshot(), *AUTHORS)]
    assert table_of(*honest, *lying, ledger=run_ledger).agreed(3) == []
    assert len(table_of(*honest, *lying[1:], ledger=run_ledger).agreed(3)) == 3


def test_quorum__many_strangers_each_with_a_claim_of_its_own__are_counted_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault once: every claim was compared with every attestation, at each tick; made-up keys stopped a joiner."""
    run, claim_of = run_of(admission="open"), Mock(side_effect=Attestation.claim.fget)  # type: ignore[attr-defined]
    table = AttestationTable(run, Ledger(run))
    for number in range(24):
        table.add(table.codec.attest(signer(number), STEP, 999, bytes([number]) * 32).data, teller=X)
    monkeypatch.setattr(Attestation, "claim", property(claim_of))
    assert table.agreed(2) == [] and claim_of.call_count == 24


def test_quorum__authors_not_admitted_or_excluded__do_not_count() -> None:
    strangers = [each.data for each in attest(true_snapshot(), 1, 2, 7)]
    assert table_of(*strangers).agreed(3) == []
    ledger = replica_of().ledger
    table = table_of(*(each.data for each in attest(true_snapshot(), *AUTHORS)), ledger=ledger)
    assert table.agreed(3)
    ledger.add_statement(exclude(RUN, 2, 2_048))
    assert table.agreed(3) == [] and len(table.page()) == 2


def test_table__author_says_more__the_first_of_a_step_stays_and_a_later_step_replaces_it() -> None:
    first, other = attest(true_snapshot(), 1)[0], attest(false_snapshot(), 1)[0]
    later = attest(take_snapshot(replica_of(), 2 * STEP), 1)[0]
    table = table_of(first.data)
    for data in (first.data, other.data):
        with pytest.raises(Ignore) as caught:
            table.add(data)
        assert caught.value.reason is IgnoreReason.ALREADY_HELD
    assert table.add(later.data) == later and table.page() == (later.data,)


def test_table__live__passes_over_whose_updates_do_not_count() -> None:
    for number in (7, JOINER):  # not admitted; admitted, without an update
        with pytest.raises(Ignore) as caught:
            table_of().add(attest(true_snapshot(), number)[0].data)
        assert caught.value.reason is IgnoreReason.NOT_ADMITTED


def test_table__full__gives_up_those_who_are_no_longer_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ATTESTATIONS_MAX", 2)
    ledger = replica_of().ledger
    table = AttestationTable(RUN, ledger)
    one, two, three = attest(true_snapshot(), *AUTHORS)
    for each in (one, two):
        table.add(each.data)
    with pytest.raises(Ignore) as caught:
        table.add(three.data)
    assert caught.value.reason is IgnoreReason.ATTESTATIONS_FULL and len(table.page()) == 2
    ledger.add_statement(exclude(RUN, 1, 4_000))
    assert table.add(three.data) == three
    assert set(table.page()) == {two.data, three.data}


def made_up(count: int) -> list[bytes]:
    """Attestations of keys that nobody knows, of a later snapshot."""
    later = replace(true_snapshot(), step=2 * STEP)
    return [each.data for each in attest(later, *range(100, 100 + count))]


def test_joiner__neighbour_tells_of_made_up_authors__crowds_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault once: before the roster is here nobody is trusted, and 150 kB of made-up keys displaced the authors."""
    monkeypatch.setattr(limits, "ATTESTATIONS_MAX", 8)
    monkeypatch.setattr(limits, "ATTESTATIONS_PER_TELLER_MAX", 5)
    joiner = Node(RUN, signer(JOINER), NodeConfig(snapshot=SnapshotUse.ALWAYS), Replica(RUN))
    join(joiner, X, Y)
    tell(joiner, X, Attestations(attestations=tuple(made_up(10))), 5)
    tell(joiner, Y, Attestations(attestations=tuple(each.data for each in attest(true_snapshot(), *AUTHORS))), 6)
    tell(joiner, X, Attestations(attestations=tuple(made_up(20)[10:])), 7)
    assert joiner.snapshots.ignored == {"ATTESTATIONS_FULL": 15}
    for number in AUTHORS:
        joiner.replica.add_statement(admit(RUN, number))
    assert len(joiner.snapshots.attestations.agreed(3)) == 3


def test_joiner__liar_tells_of_the_authors_first_and_leaves__those_told_by_others_stay() -> None:
    told = [each.data for each in attest(true_snapshot(), *AUTHORS)]
    table = AttestationTable(RUN, replica_of(held=()).ledger)
    for teller in (X, Y):
        for data in told:
            table.add(data, teller=teller)
    table.forget(X)
    assert len(table.agreed(3)) == 3
    table.forget(Y)
    assert table.agreed(3) == [] and not table._told


def test_table__teller_leaves__what_authors_say_who_contribute_by_now_stays() -> None:
    replica = replica_of(held=())
    table = AttestationTable(RUN, replica.ledger)
    for each in attest(true_snapshot(), *AUTHORS):
        table.add(each.data, teller=X)
    for record in records()[:2]:  # of two of them
        replica.add(record)
    table.forget(X)
    assert len(table.page()) == 2


# --- making and telling


def made_in(effects: list[Effect]) -> list[StoreSnapshot]:
    return [effect for effect in effects if isinstance(effect, StoreSnapshot)]


def test_node__leaves_a_span_behind__attests_it_once_and_tells_all() -> None:
    node = Node(RUN, signer(1), NodeConfig(), replica_of())
    join(node, X, Y)
    effects = make_live(node, X)
    (own,) = attest(true_snapshot(), 1)
    told = [(e.peer, e.message) for e in effects if isinstance(e, SendMessage)]
    assert [pair for pair in told if isinstance(pair[1], Attestations)] == [
        (peer, Attestations(attestations=(own.data,))) for peer in (X, Y)
    ]
    data = encode_snapshot(RUN, true_snapshot())
    assert made_in(effects) == [StoreSnapshot(step=STEP, sha256=hashlib.sha256(data).hexdigest(), data=data)]
    assert not [e for e in make_live(node, X) if isinstance(e, SendMessage) and isinstance(e.message, Attestations)]


@pytest.mark.parametrize("held_until", [STEP + 64 * ROUND - ROUND, STEP])
def test_node__span_not_far_behind__attests_nothing(held_until: int) -> None:
    """Updates that are a little late are still to come."""
    held = tuple(record for record in records() if int.from_bytes(record[32:36], "big") <= held_until)
    node = Node(RUN, signer(1), NodeConfig(), replica_of(held=held))
    join(node, X)
    effects = make_live(node, X)
    assert not made_in(effects) and node.snapshots.attestations.page() == ()


def test_node__does_not_train__makes_the_file_and_signs_nothing() -> None:
    node = Node(RUN, signer(1), NodeConfig(is_training=False), replica_of())
    join(node, X)
    effects = make_live(node, X)
    assert made_in(effects) and node.snapshots.attestations.page() == ()


def test_node__snapshot_over_the_bound__makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one epoch, it is known once the file is there; of many, before."""
    monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 100)
    take = Mock(side_effect=take_snapshot)
    monkeypatch.setattr(snapshot_proof, "take_snapshot", take)
    for manifest, calls in ((RUN, 1), (run_of(epoch_steps=16), 1)):
        node = Node(manifest, signer(1), NodeConfig(), replica_of(manifest))
        join(node, X)
        effects = make_live(node, X)
        assert not made_in(effects) and node.snapshots.attestations.page() == ()
        assert take.call_count == calls


def test_node__hears_an_attestation__tells_the_others_once_and_answers_who_asks() -> None:
    node = Node(RUN, signer(1), NodeConfig(), replica_of())
    join(node, X, Y)
    make_live(node, X)
    own, news = attest(true_snapshot(), 1, 2)
    message = Attestations(attestations=(news.data,))
    for expected in ([SendMessage(peer=Y, message=message)], []):
        assert [e for e in tell(node, X, message, 30) if isinstance(e, SendMessage)] == expected
    answer = Attestations(attestations=tuple(e.data for e in sorted((own, news), key=lambda each: each.author)))
    assert tell(node, Y, AttestationsRequest(), 40) == [SendMessage(peer=Y, message=answer)]
    assert node.snapshots.ignored == {"ALREADY_HELD": 1}
