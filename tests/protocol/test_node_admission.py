"""The node core and statements: taken in, stored, passed on; nodes that may not contribute sign nothing; all agree."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from protocol.events import (
    DropPeer,
    EstimateFinished,
    SendMessage,
    StatementSubmitted,
    StoreRecords,
    StoreStatements,
    Ticked,
    WorkerReady,
)
from protocol.ledger.statements import StatementCodec
from protocol.limits import RECORDS_PER_FRAME_MAX, STEPS_AHEAD_MAX
from protocol.run.admission import AdmissionKind
from protocol.run.manifest import Manifest
from protocol.wire import Records, Statements
from tests.simulation.scripted import scripted_network
from tests.support.ledgers import admit, claim, exclude, seal, signer
from tests.support.manifests import OWNER, small_manifest
from tests.support.node_cores import (
    MANIFEST,
    ME,
    X,
    Y,
    head_of,
    join,
    join_live,
    node,
    own,
    pushed,
    sent,
    start_effects,
    tell,
    without_heads,
)

LISTED, INVITED = small_manifest(admission="allow-list"), small_manifest(admission="invite")
LONG = small_manifest(steps=400)
CODEC = StatementCodec(MANIFEST)


def pushed_statements(*statements: bytes) -> Statements:
    return Statements(request=0, statements=statements, is_last=True)


def test_node__statement_pushed__is_stored_first_and_told_to_all_but_its_source() -> None:
    told = node()
    join(told, X, Y)
    effects = tell(told, X, pushed_statements(exclude(MANIFEST, 1, 3)), 10)
    assert without_heads(effects) == [
        StoreStatements(statements=(exclude(MANIFEST, 1, 3),)),
        SendMessage(peer=Y, message=pushed_statements(exclude(MANIFEST, 1, 3))),
    ]
    assert without_heads(tell(told, Y, pushed_statements(exclude(MANIFEST, 1, 3)), 20)) == []


def test_node__statement_submitted_here__is_told_to_all() -> None:
    told = node()
    join(told, X, Y)
    effects = told.handle(StatementSubmitted(statement=exclude(MANIFEST, 1, 3)), 10)
    assert [peer for peer, _ in sent(effects, Statements)] == [X, Y]


def test_node__statement_that_is_forged__drops_a_peer_and_keeps_those_before_it() -> None:
    told = node()
    join(told, X, Y)
    forged = exclude(MANIFEST, 2, 3, by=ME)
    effects = tell(told, X, pushed_statements(exclude(MANIFEST, 1, 3), forged), 10)
    assert StoreStatements(statements=(exclude(MANIFEST, 1, 3),)) in effects
    assert [effect.peer for effect in effects if isinstance(effect, DropPeer)] == [X]
    assert told.rejected == {"STATEMENT_SIGNATURE": 1}


def test_node__forged_statement_submitted_here__is_counted_and_no_more() -> None:
    told = node()
    join(told, X)
    assert without_heads(told.handle(StatementSubmitted(statement=exclude(MANIFEST, 2, 3, by=ME)), 10)) == []
    assert told.rejected == {"STATEMENT_SIGNATURE": 1}


def test_node__token_claimed_twice__tells_both_claims() -> None:
    told = node(manifest=INVITED)
    join(told, X, Y)
    tell(told, X, pushed_statements(claim(INVITED, 1, 1)), 10)
    effects = tell(told, X, pushed_statements(claim(INVITED, 1, 2)), 20)
    assert sent(effects, Statements) == [(Y, pushed_statements(claim(INVITED, 1, 1), claim(INVITED, 1, 2)))]


def test_node__record_of_an_author_not_admitted__is_ignored_and_its_sender_stays() -> None:
    told = node(manifest=LISTED)
    join(told, X)
    assert without_heads(tell(told, X, pushed(seal(LISTED, 1, 0)), 10)) == []
    assert (told.intake.ignored, told.rejected) == ({"NOT_ADMITTED": 1}, {})
    tell(told, X, pushed_statements(admit(LISTED, 1)), 20)
    effects = tell(told, X, pushed(seal(LISTED, 1, 0)), 30)
    assert StoreRecords(records=(seal(LISTED, 1, 0),), is_own=False) in effects


def test_node__record_ignored_at_first_and_new_from_another__goes_back_to_whoever_sent_it_before() -> None:
    """SPEC 8.3: nothing is remembered of records that were ignored."""
    relay = node(manifest=LISTED, is_training=False)
    join(relay, X, Y)
    record = seal(LISTED, 1, 0)
    tell(relay, X, pushed(record), 1_000)
    tell(relay, Y, pushed_statements(admit(LISTED, 1)), 2_000)
    assert sent(tell(relay, Y, pushed(record), 3_000), Records) == [(X, pushed(record))]


def test_node__excluded_record_that_waits_in_a_queue__is_not_sent() -> None:
    told = node()
    join(told, X, Y)
    told.handle(Ticked(), 100)
    tell(told, X, pushed(seal(MANIFEST, 1, 0)), 101)
    tell(told, X, pushed(seal(MANIFEST, 1, 5), seal(MANIFEST, 2, 5)), 102)
    tell(told, X, pushed_statements(exclude(MANIFEST, 1, 3)), 103)
    effects = told.handle(Ticked(), 400)
    assert sent(effects, Records) == [(Y, pushed(seal(MANIFEST, 2, 5)))]


def test_node__excluded_author__leaves_the_step_clock() -> None:
    told = node()
    join(told, X)
    tell(told, X, pushed(seal(MANIFEST, 1, 0), seal(MANIFEST, 2, 9)), 10)
    told.handle(StatementSubmitted(statement=exclude(MANIFEST, 2, 0)), 20)
    assert told.turn.frontier() == 0
    assert set(told.clock.authors._heard_ms) == {signer(1).author}


def test_node__most_authors_were_excluded__frontier_is_that_of_the_others() -> None:
    """A newcomer began a finished run anew where its excluded authors had ended, and signed 231 updates."""
    told = node()
    join(told, X)
    tell(told, X, pushed(seal(MANIFEST, 1, 30), seal(MANIFEST, 2, 3), seal(MANIFEST, 3, 2)), 10)
    tell(told, X, pushed_statements(exclude(MANIFEST, 2, 4), exclude(MANIFEST, 3, 3)), 20)
    told.handle(Ticked(), 100_000)  # nobody was heard for a minute
    assert told.turn.frontier() == 30


def test_node__furthest_author_is_excluded_from_later_on__what_it_signed_before_may_still_be_asked_for() -> None:
    """A laptop that had slept meanwhile was held to 64 rounds beyond its own last step, and never agreed again."""
    told = node(manifest=LONG, records=[seal(LONG, 1, 200)])
    join_live(told, X)
    told.handle(StatementSubmitted(statement=exclude(LONG, 1, 250)), 100)
    told.handle(Ticked(), 100_000)
    assert told.turn.horizon(asked_step=0) == 200 + STEPS_AHEAD_MAX


def test_node__not_admitted__starts_no_step_until_it_is() -> None:
    waiting = node(manifest=LISTED)
    assert waiting.handle(WorkerReady(), 10) == []
    codec = StatementCodec(LISTED)
    effects = waiting.handle(StatementSubmitted(statement=codec.admit(OWNER, ME.author)), 20)
    assert effects[1:] == start_effects(0, LISTED)


def test_node__excluded_from_a_later_step__trains_until_then() -> None:
    training = node()
    training.handle(StatementSubmitted(statement=CODEC.exclude(OWNER, ME.author, 1)), 5)
    assert training.handle(WorkerReady(), 10) == start_effects(0)
    effects = training.handle(EstimateFinished(step=0, scalars=(5,)), 20)
    assert effects == [StoreRecords(records=(own(0, 5),), is_own=True)]
    assert training.handle(Ticked(), 60_000) == []
    assert training.own_steps.updates == 1


def test_node__excluded_while_its_worker_measures__signs_nothing() -> None:
    training = node()
    training.handle(WorkerReady(), 10)
    training.handle(StatementSubmitted(statement=CODEC.exclude(OWNER, ME.author, 0)), 20)
    assert training.handle(EstimateFinished(step=0, scalars=(5,)), 30) == []
    assert (training.own_steps.updates, training.own_steps.skipped) == (0, 1)


@pytest.mark.parametrize("is_training", [True, False], ids=["excluded", "relay"])
def test_node__contributes_nothing__has_finished_when_the_others_have(is_training: bool) -> None:
    short = small_manifest(steps=2)
    following = node(manifest=short, is_training=is_training)
    if is_training:
        assert not following.own_steps.is_finished
        following.handle(StatementSubmitted(statement=StatementCodec(short).exclude(OWNER, ME.author, 0)), 5)
    join(following, X)
    tell(following, X, pushed(seal(short, 1, 0)), 10)
    assert not following.own_steps.is_finished
    tell(following, X, pushed(seal(short, 1, 1)), 20)
    assert not following.own_steps.is_finished  # not live: more may be missing
    tell(following, X, head_of(following.replica.ledger, following.replica.state_digest()), 30)
    assert following.own_steps.is_finished


# --- whole networks


@pytest.mark.parametrize("seed", range(4))
def test_network__admissions_and_an_exclusion_in_the_middle__agrees_with_a_replay(seed: int) -> None:
    chance = random.Random(seed)
    with scripted_network(seed=seed, loss=0.05, is_listed=True) as network:
        codec, names = StatementCodec(network.manifest), network.add_ring(5)
        authors = {name: network.hosts[name].signer.author for name in names}
        for name in names:
            network.state(chance.choice(names), codec.admit(OWNER, authors[name]))
            network.run(chance.randrange(1_500))
        excluded, from_step = chance.choice(names), chance.randrange(12)
        network.state(chance.choice(names), codec.exclude(OWNER, authors[excluded], from_step))
        late = network.add("late", "node2", expects_peers=True)
        network.state("node3", codec.admit(OWNER, late.signer.author))
        network.run(60_000)

        assert len({network.node(name).replica.ledger.root() for name in network.hosts}) == 1
        assert all(network.node(name).own_steps.is_finished for name in network.hosts)
        replayed = network.replayed("late", chance)
        assert network.digests() == {replayed.state_digest()}
        steps = [
            envelope.step for envelope in replayed.ledger.slots.envelopes() if envelope.author == authors[excluded]
        ]
        assert max(steps, default=-1) < from_step
        assert network.starts() == dict.fromkeys(network.hosts, 1)  # none halted


def made_up(manifest: Manifest, count: int) -> list[bytes]:
    """Updates of as many authors that nobody knows, signed by none."""
    blank, chance = seal(manifest, 0, 3), random.Random(7)
    return [chance.randbytes(32) + blank[32:] for _ in range(count)]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [(LISTED, "NOT_ADMITTED"), (small_manifest(authors_max=1), "AUTHORS_FULL")],
    ids=["allow-list", "open, table full"],
)
def test_node__100000_unknown_identities__cost_it_no_signature_and_no_memory(
    manifest: Manifest, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded = node(manifest=manifest)
    join(flooded, X)
    if manifest.admission.kind is AdmissionKind.OPEN:
        tell(flooded, X, pushed(seal(manifest, 0, 3)), 1)
    root, updates = flooded.replica.ledger.root(), flooded.replica.ledger.updates
    monkeypatch.setattr("protocol.ledger.envelope.is_signed", None)  # any check of a signature fails
    strangers = made_up(manifest, 100_000)
    held_bytes = []
    for start in range(0, len(strangers), RECORDS_PER_FRAME_MAX):
        if start > 80_000 and not tracemalloc.is_tracing():
            tracemalloc.start()  # what is bounded is full by now
        effects = tell(flooded, X, pushed(*strangers[start : start + RECORDS_PER_FRAME_MAX]), 2)
        assert without_heads(effects) == []
        held_bytes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert flooded.intake.ignored[reason] == len(strangers)
    assert (flooded.replica.ledger.root(), flooded.replica.ledger.updates) == (root, updates)
    assert held_bytes[-1] - held_bytes[-20] < 20 * RECORDS_PER_FRAME_MAX  # less than a byte for each
