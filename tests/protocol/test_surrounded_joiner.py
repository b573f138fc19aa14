"""A joiner all of whose neighbours are liars: what a snapshot can make it believe, and for how long (SPEC 9.5)."""

from __future__ import annotations

import pytest

from protocol.events import (
    EstimateFinished,
    FetchSnapshot,
    Halt,
    ReserveStep,
    SnapshotArrived,
    SnapshotOutcome,
    WorkerReady,
)
from protocol.node.node_config import SnapshotUse
from protocol.state.snapshot import encode_snapshot
from protocol.wire import PeerId
from tests.support.snapshot_runs import (
    AUTHORS,
    ROUND,
    RUN,
    Pair,
    attest,
    false_snapshot,
    records,
    replica_of,
    true_snapshot,
)

MADE_UP = tuple(range(20, 40))
LIAR = PeerId("liar")


def surrounded(*attesters: int) -> Pair:
    """A joiner whose only neighbour has a false snapshot, and these keys to attest it with."""
    pair = Pair(snapshot=SnapshotUse.ALWAYS)
    for each in attest(false_snapshot(), *attesters):
        pair.veteran.snapshots.attestations.add(each.data, teller=LIAR)
        pair.joiner.snapshots.attestations.add(each.data, teller=LIAR)
    return pair


@pytest.mark.parametrize("attesters", [MADE_UP, AUTHORS[:2], (*AUTHORS[:2], *MADE_UP)], ids=["made", "two", "both"])
def test_joiner__liars_with_fewer_than_three_keys_that_the_owner_admitted__show_it_nothing(
    attesters: tuple[int, ...],
) -> None:
    """However many keys they have made up, and however many honest attestations they keep back."""
    pair = surrounded(*attesters)
    pair.run(lambda: pair.joiner.sync.is_live)
    assert pair.joiner.sync.is_live and not list(pair.of_joiner(FetchSnapshot))
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.NONE
    assert pair.joiner.replica.state_digest() == replica_of().state_digest()


def test_joiner__three_admitted_liars_show_a_false_state__none_of_it_enters_its_ledger_or_its_digest() -> None:
    """It trains on their state as long as they surround it; the first whole set, from anybody, ends that."""
    pair = surrounded(*AUTHORS)
    pair.joiner.handle(WorkerReady(), 0)
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()))
    pair.joiner.handle(SnapshotArrived(data=encode_snapshot(RUN, false_snapshot())), pair.now_ms)
    pair.run(lambda: any(pair.of_joiner(ReserveStep)))
    shown, own = pair.joiner.replica.shown(), pair.joiner.replica.coefficients()
    assert shown is not own and int(shown.flat(0)[5]) != int(own.flat(0)[5])
    step = pair.joiner.own_steps.estimating
    assert step is not None
    pair.joiner.handle(EstimateFinished(step=step, scalars=(1,) * ROUND), pair.now_ms)
    assert pair.joiner.own_steps.updates == 1, (
        "what it measured on their state counts: an honest number of a false state"
    )
    pair.run(lambda: any(pair.of_joiner(Halt)))
    (halt,) = pair.of_joiner(Halt)
    assert isinstance(halt, Halt)
    held = replica_of()
    held.add(pair.joiner.replica.ledger.slots.first_of(pair.joiner.author, range(step, step + 1))[0].record)
    assert pair.joiner.replica.state_digest() == held.state_digest()


def test_joiner__liars_give_an_old_true_snapshot_and_keep_the_rest_back__it_is_only_behind() -> None:
    """They could as well have kept it back without a snapshot; the first honest neighbour brings the rest."""
    held = records()[: -4 * len(AUTHORS)]
    pair = Pair(held=held, snapshot=SnapshotUse.ALWAYS)
    for each in attest(true_snapshot(), *AUTHORS):
        pair.joiner.snapshots.attestations.add(each.data, teller=LIAR)
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()))
    pair.joiner.handle(SnapshotArrived(data=encode_snapshot(RUN, true_snapshot())), pair.now_ms)
    pair.run(lambda: pair.joiner.snapshots.outcome is SnapshotOutcome.PROVED)
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.PROVED
    assert pair.joiner.replica.state_digest() == replica_of(held=held).state_digest()
