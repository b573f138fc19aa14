"""The programs of SPEC 9.1 and 9.5 say what the step clock and the snapshots do: both are run on the same histories."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from statistics import median_low
from types import SimpleNamespace

import pytest

from protocol.crypto.hashing import Author
from protocol.ledger.ledger import Ledger
from protocol.node.snapshot_agreement import AttestationTable
from protocol.node.step_clock import StepClock
from protocol.run.manifest import checked
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec, Snapshot
from protocol.state.snapshot_proof import judge, take_snapshot
from protocol.wire import PeerId
from tests.support.ledgers import MemoryArchive, claim, exclude, seal, signer
from tests.support.manifests import manifest_data
from tests.support.snapshot_runs import AUTHORS, RUN, STEP, false_snapshot, records, replica_of, run_of, true_snapshot
from tests.support.spec_programs import spec_program

CLOCK, SNAPSHOTS = spec_program("### 9.1"), spec_program("### 9.5")
OWN, *OTHERS = (Author(bytes([number]) * 32) for number in range(6))
ROUND, DIRECTIONS, SHARES = 2, 8, 2
ROUND_SCALARS = RUN.method.scalars


class BothClocks:
    """The step clock and the program's node, told the same things. ``chosen``: how many directions each start had."""

    def __init__(self, staleness: int, steps: int) -> None:
        data = manifest_data(local_steps=ROUND, directions=DIRECTIONS, shares=SHARES)
        self.clock = StepClock(checked({**data, "steps": steps, "staleness": staleness}), OWN)
        self.node = SimpleNamespace(own=OWN, t=0, K=ROUND, staleness=staleness, steps=steps)
        self.node.__dict__.update(
            D=DIRECTIONS, shares=SHARES, M=DIRECTIONS, is_dense=False, took=None, late=False, measured={}
        )
        self.node.__dict__.update(
            highest={},
            held={},
            heard={},
            met={},
            interval={},
            paces=[],
            ready=None,
            started=None,
            half=None,
            alone=None,
        )
        self.is_measuring = False
        self.now_ms = 0
        self.chosen: Counter[int] = Counter()

    def hold(self, author: Author, step: int, *, scalars: list[int], is_heard: bool) -> None:
        self.node.highest[author] = self.node.held[author] = step
        if is_heard:
            self.clock.hear(author, scalars, self.now_ms)
            CLOCK.hear(self.node, author, scalars, self.now_ms)

    def forget(self, author: Author) -> None:
        """The owner has excluded the author, of whom something is held still."""
        for held in (self.node.highest, self.node.heard, self.node.met, self.node.interval, self.node.measured):
            held.pop(author, None)
        self.clock.forget_others(self.node.highest)

    def meet(self, heads: list[int]) -> None:
        self.clock.authors.meet(self.node.highest, median_low(heads) if heads else -1, self.now_ms)
        CLOCK.meet(self.node, self.now_ms, heads)

    def go_on(self, *, is_measured: bool, has_company: bool) -> None:
        """Finish the step that is measured, or try to start one."""
        if self.is_measuring:
            self.clock.step_finished(self.now_ms, is_measured=is_measured)
            CLOCK.done(self.node, self.now_ms, is_measured)
            self.is_measuring = False
            return
        self.clock.resume_after(self.node.highest.get(OWN, -1))
        started = self.clock.try_start(self.node.highest, self.now_ms, has_company=has_company)
        assert CLOCK.try_start(self.node, self.now_ms, has_company) == started
        self.is_measuring = started is not None
        self.chosen[self.clock.affordable.chosen] += self.is_measuring

    def assert_equal(self, heads: list[int], asked: int) -> None:
        clock, node, highest, now_ms = self.clock, self.node, self.node.highest, self.now_ms
        told = median_low(heads) if heads else -1
        assert clock.next_step == node.t
        assert clock.affordable.chosen == node.M
        assert clock.authors.frontier(highest, now_ms) == CLOCK.frontier(node, now_ms)
        assert clock.authors.is_run_over(highest, now_ms) == (CLOCK.furthest(node, now_ms) >= node.steps - node.K)
        for asked_step in (None, asked):
            horizon = clock.authors.horizon(
                node.held, now_ms, own_step=clock.next_step, neighbours=told, asked_step=asked_step
            )
            assert horizon == CLOCK.horizon(node, now_ms, heads, asked_step)
        assert clock.authors.awaited(highest, now_ms) == sorted(CLOCK.awaited(node, now_ms))


@pytest.mark.parametrize("seed", range(40))
def test_step_clock__any_history__does_what_the_program_of_the_specification_does(seed: int) -> None:
    chance = random.Random(seed)
    events = (400, *[40] * 30)  # what holds before a pace or an interval is known is soon over
    chosen = sum((starts_of_a_history(chance, count) for count in events), Counter())
    assert chosen.total() > 40 and chosen.keys() > {DIRECTIONS}


def round_of(chance: random.Random) -> list[int]:
    """Scalars of an author who measured so many directions, some of them zero."""
    measured = chance.randrange(0, DIRECTIONS + 1)
    steps = [[chance.randrange(-1, 2) for _ in range(measured)] + [0] * (DIRECTIONS - measured) for _ in range(ROUND)]
    return [scalar for step in steps for scalar in step]


def starts_of_a_history(chance: random.Random, events: int) -> Counter[int]:
    """Steps begun in a history of so many events, by their directions; both are compared after each event."""
    both = BothClocks(staleness=chance.randrange(3), steps=chance.choice((60, 4_000)))
    authors = OTHERS[: chance.randrange(1, 1 + len(OTHERS))]
    company = chance.choice((0, 0.8, 1))
    pause_ms, is_slow = 10 ** chance.randrange(1, 6), chance.random() < 0.25
    for author in (OWN, *authors) if chance.random() < 0.5 else ():  # after a restart
        both.hold(author, chance.randrange(10, 30, ROUND), scalars=round_of(chance), is_heard=chance.random() < 0.5)
    if chance.random() < 0.5:
        both.meet([chance.randrange(200)] * chance.randrange(2))
    for _ in range(events):
        both.now_ms += chance.randrange(pause_ms if chance.random() < 0.98 else chance.choice((70_000, 700_000)))
        author = chance.choice(authors)
        ahead = chance.choice((-3, -2, -1, 0, 0, 1, 12)) * ROUND
        step = max(both.node.highest.get(author, -ROUND) + ROUND, 0 if is_slow else both.node.t + ahead)
        match chance.randrange(20):
            case 0:
                both.forget(author)
            case 1:
                step = max(both.node.highest.get(OWN, 0), both.node.t)
                both.hold(OWN, step, scalars=round_of(chance), is_heard=chance.random() < 0.5)
            case n if n < 10 and step < both.node.steps:
                both.hold(author, step, scalars=round_of(chance), is_heard=n > 2)
            case _:
                both.go_on(is_measured=chance.random() < 0.9, has_company=chance.random() < company)
        heads = [chance.randrange(0, both.node.steps) for _ in range(chance.randrange(4))]
        both.assert_equal(heads, chance.randrange(0, both.node.steps))
    return both.chosen


# --- snapshots


@pytest.mark.parametrize("seed", range(12))
def test_attestations__of_several_files__agree_on_the_one_of_the_program(seed: int) -> None:
    chance, run = random.Random(seed), run_of(admission="open")
    codec, table, newest = AttestationCodec(run), AttestationTable(run, Ledger(run)), []
    for number in range(chance.randrange(1, 9)):
        claimed = STEP * chance.choice((1, 2)), chance.choice((100, 100, 200)), hashlib.sha256(b"file").digest()
        table.add(codec.attest(signer(number), *claimed).data, teller=PeerId("x"))
        newest.append(claimed)
    for enough in (1, 2, 3):
        agreed = SNAPSHOTS.agreed(newest, enough)
        found = table.agreed(enough)
        assert {each.claim for each in found} == ({agreed} if agreed else set())
        assert len(found) == (newest.count(agreed) if agreed else 0)


def below(replica: Replica, *, is_cut: bool = False) -> SimpleNamespace:
    return seen(take_snapshot(replica, STEP), is_cut=is_cut)


def seen(snapshot: Snapshot, *, is_cut: bool = False) -> SimpleNamespace:
    flat = {epoch: values.tolist() for epoch, values in snapshot.epochs.items()}
    return SimpleNamespace(D=snapshot.digest, n=snapshot.slots, slots=snapshot.slots, coefficients=flat, is_cut=is_cut)


def test_proof__whatever_the_ledger_holds__is_judged_as_by_the_program() -> None:
    full, lacking, cut = replica_of(), replica_of(held=records()[1:]), replica_of(held=records()[1:])
    voided = replica_of(held=(*records(), seal(RUN, AUTHORS[0], 0, *range(ROUND_SCALARS))))
    cut.add_statement(exclude(RUN, AUTHORS[0], STEP - 1))
    words = {"proved": "equal", "stop": "unequal", "unproved": "other set", "wait": "missing"}
    judged = []
    for file in (true_snapshot(), false_snapshot(), take_snapshot(lacking, STEP)):
        for replica, is_cut in ((full, False), (voided, False), (lacking, False), (cut, True)):
            told = SNAPSHOTS.proof(seen(file), below(replica, is_cut=is_cut), 0)
            assert words[told] == judge(file, replica).value
            judged.append(told)
    assert set(judged) == set(words)


@pytest.mark.parametrize("archive", [None, MemoryArchive()])
def test_proof__record_suspended__is_a_cut(archive: MemoryArchive | None) -> None:
    """With an archive, as in the daemon, no such record is in memory, and the proof once waited a minute for them."""
    run = run_of(admission="invite")
    replica = Replica(run, archive)
    replica.add_statement(claim(run, 1, 1))
    for record in records(run)[::3]:
        replica.add(record)
    whole = take_snapshot(replica, STEP)
    replica.add_statement(claim(run, 1, 2))
    assert SNAPSHOTS.proof(seen(whole), below(replica, is_cut=True), 0) == "unproved"
    assert judge(whole, replica).value == "other set"
