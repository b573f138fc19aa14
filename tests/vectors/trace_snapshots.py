"""Traces of snapshots (SPEC 9.5): who makes and attests them, when a joiner uses one, what its replay says of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from protocol.node.node_config import SnapshotUse
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec, Snapshot, encode_snapshot
from protocol.state.snapshot_proof import take_snapshot
from protocol.wire import Attestations, AttestationsRequest, Statements
from tests.support.ledgers import admit, exclude, seal, signer
from tests.vectors.notation import Document
from tests.vectors.runs import record, run
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import ME, Story, X, Y, head_of, sha256_of

_METHOD = {"local_steps": 16, "epoch_steps": 768, "rank": 2}
OPEN = run(_METHOD, steps=4_096)
LISTED = run(_METHOD, steps=4_096, admission={"kind": "allow-list", "pow_bits": 0})
_MANIFESTS = {"open": OPEN, "allow-list": LISTED}
STEP = 1_024  # it divides an epoch
FRONTIER = STEP + 64 * 16
BEFORE = (0, 512, 1_008)  # rounds below the snapshot's step
AUTHORS = (1, 2, 3)


def snapshots() -> Document:
    """traces_snapshots.json"""
    return traces("Snapshots: SPEC 9.5. Nobody need make, attest or use one", _stories, _MANIFESTS)


def _stories() -> Iterator[Story]:
    yield from _making()
    yield from _attestations()
    yield from _choosing()
    yield from _using()
    yield from _proving()
    yield from _seeking()


# --- builders


def rounds(*steps: int, manifest: Manifest = OPEN, authors: Sequence[int] = AUTHORS) -> list[bytes]:
    """These rounds of all authors."""
    return [seal(manifest, author, step) for step in steps for author in authors]


def mine(step: int) -> bytes:
    """A round of the node itself."""
    return record(OPEN, step, *([7] * 16), author=ME)


FULL = tuple(rounds(*BEFORE, STEP, FRONTIER))


def replica_of(records: Sequence[bytes], manifest: Manifest = OPEN) -> Replica:
    """A replica of these records; in the listed run all authors are admitted."""
    replica = Replica(manifest)
    for author in AUTHORS if manifest is LISTED else ():
        replica.add_statement(admit(manifest, author))
    for each in records:
        replica.add(each)
    return replica


def snapshot_of(records: Sequence[bytes], manifest: Manifest = OPEN) -> Snapshot:
    """What these records imply."""
    return take_snapshot(replica_of(records, manifest), STEP)


def attested(data: bytes, *authors: int, step: int = STEP, manifest: Manifest = OPEN) -> Attestations:
    """What these authors sign about a file."""
    codec, sha256 = AttestationCodec(manifest), hashlib.sha256(data).digest()
    made = [codec.attest(signer(number), step, len(data), sha256).data for number in authors]
    return Attestations(attestations=tuple(made))


TRUE = encode_snapshot(OPEN, snapshot_of(FULL))


def _false() -> bytes:
    """The same updates, but one coefficient is wrong."""
    true = snapshot_of(FULL)
    flat = true.epochs[0].copy()
    flat[3] += 1
    return encode_snapshot(OPEN, replace(true, epochs={**true.epochs, 0: flat}))


def joiner(name: str, *, data: bytes = TRUE, authors: Sequence[int] = AUTHORS, **config: Any) -> Story:
    """A joiner whose first neighbour tells attestations of a file, and holds more than it."""
    told = Story(name, OPEN, **{"expects_peers": True, "snapshot": SnapshotUse.ALWAYS, **config}).tick(0)
    return told.join(10, X).tell(20, X, attested(data, *authors))


# --- making


def _making() -> Iterator[Story]:
    held = [*rounds(*BEFORE, STEP), mine(16), mine(1_040)]
    told = Story(
        "64 rounds behind the frontier: made once, stored, attested and told", OPEN, held=held, reserved_step=1_040
    )
    told.tick(0).join(10, X, Y).same(20, X).push(100, X, *rounds(FRONTIER - 16)).tick(150)
    told.push(200, X, *rounds(FRONTIER)).tick(250).push(300, X, *rounds(FRONTIER + 16)).tick(350)
    yield told.tell(400, Y, AttestationsRequest())

    told = Story("a node without an own update makes it, and does not attest it", OPEN, held=rounds(*BEFORE, STEP))
    yield told.tick(0).join(10, X).same(20, X).push(200, X, *rounds(FRONTIER)).ticks(250, 300)

    held = [*rounds(*BEFORE, STEP), mine(0)]
    told = Story("an own update of step 0 is one: the node attests it", OPEN, held=held)
    yield told.tick(0).join(10, X).same(20, X).push(200, X, *rounds(FRONTIER)).ticks(250, 300)

    held = [*rounds(*BEFORE, STEP), mine(16)]
    told = Story("a relay does not attest it, even with an own update", OPEN, held=held, is_training=False)
    yield told.tick(0).join(10, X).same(20, X).push(200, X, *rounds(FRONTIER)).ticks(250)

    told = Story("a node that is not live makes none", OPEN, held=FULL)
    yield told.tick(0).join(10, X).tick(100)


# --- attestations


def _attestations() -> Iterator[Story]:
    told = Story(
        "live: what is new goes to all but its source, older and unknown ones to nobody",
        OPEN,
        held=FULL,
        is_training=False,
    )
    told.tick(0).join(10, X, Y).same(20, X).tell(100, X, attested(TRUE, 1, 2), attested(TRUE, 1, 9))
    told.tell(200, Y, attested(TRUE, 2, 3)).tell(300, X, attested(TRUE, 1, step=2_048)).tell(310, X, attested(TRUE, 1))
    yield told.tell(400, Y, AttestationsRequest())

    told = Story("live: no place in the table", OPEN, held=FULL, is_training=False)
    with told.limited(ATTESTATIONS_MAX=2):
        told.tick(0).join(10, X, Y).same(20, X).tell(100, X, attested(TRUE, 1, 2, 3))
    yield told

    told = Story(
        "not live: each neighbour has room of its own, and what it told goes with it", OPEN, snapshot=SnapshotUse.ALWAYS
    )
    with told.limited(ATTESTATIONS_PER_TELLER_MAX=2):
        told.tick(0).join(10, X, Y).tell(100, X, attested(TRUE, 1, 2, 3)).tell(110, Y, attested(TRUE, 2, 3))
        told.tick(150).fetch_failed(160, sha256_of(TRUE)).leave(170, X).tell(180, Y, AttestationsRequest()).tick(9_000)
    yield told

    (good,) = attested(TRUE, 1).attestations
    forged = good[:-1] + bytes([good[-1] ^ 1])
    told = Story("a bad signature: the peer is dropped", OPEN, held=FULL, is_training=False)
    yield told.tick(0).join(10, X).same(20, X).tell(100, X, Attestations(attestations=(forged,)))


# --- choosing


def _choosing() -> Iterator[Story]:
    yield (
        joiner("three authors agree: fetched, and again 2 s after a failure")
        .tick(50)
        .fetch_failed(100, sha256_of(TRUE))
        .ticks(2_099, 2_100)
    )
    yield joiner("two authors are not enough", authors=(1, 2)).tick(50)
    yield (
        joiner("another file than the one that was asked for is not used")
        .tick(50)
        .snapshot_arrived(100, _false())
        .tick(150)
    )
    told = joiner("not more than half: the others attest another file", authors=AUTHORS)
    yield told.tell(30, X, attested(_false(), 4, 5, 6)).tick(50)
    told = joiner("not more than half: those who attest a later step count against it")
    told.tell(30, X, attested(_false(), 4, step=2_048), attested(TRUE, 5, step=2_048), attested(TRUE, 6, step=3_072))
    yield told.tick(50)
    told = joiner("of two files that enough attest the later one", authors=range(1, 6))
    yield told.tell(30, X, attested(_false(), 6, 7, 8, step=2_048)).tick(50)
    yield joiner("never asked to: asks for no attestations", snapshot=SnapshotUse.NEVER).tick(50)
    yield joiner("auto, in an open run: asks for none", snapshot=SnapshotUse.AUTO).tick(50)
    yield _auto()
    useless = b"useless".ljust(200, b".")
    told = joiner("what they attest is no snapshot: replays first", data=useless)
    yield told.tick(50).snapshot_arrived(100, useless).tick(9_000)


def _auto() -> Story:
    told = Story(
        "auto, in a run with a list: used by a node that is far behind",
        LISTED,
        expects_peers=True,
        snapshot=SnapshotUse.AUTO,
    )
    full = replica_of(rounds(*BEFORE, manifest=LISTED), LISTED).ledger
    with told.limited(SNAPSHOT_BEHIND_MIN=8):
        told.tick(0).join(10, X).tell(
            20, X, Statements(request=0, statements=tuple(admit(LISTED, n) for n in AUTHORS), is_last=True)
        )
        told.tell(30, X, attested(TRUE, *AUTHORS, manifest=LISTED)).tick(50)
        told.tell(60, X, replace(head_of(full), updates=8)).tick(100).tell(
            110, X, replace(head_of(full), updates=9)
        ).tick(150)
    return told


# --- using


def _using() -> Iterator[Story]:
    held = [*FULL, mine(16)]
    told = _used(
        "own key first, then the newest spans: it signs before it is live",
        encode_snapshot(OPEN, snapshot_of(held)),
        held,
    )
    yield told.tick(300)

    told = joiner("the session begins while the file is sought: the same order", data=TRUE).worker_ready(30)
    full = replica_of([*FULL, mine(16)]).ledger
    told.tell(40, X, head_of(full, step=FRONTIER)).answer(45, X, full, rounds=3).tick(50).snapshot_arrived(100, TRUE)
    yield told.answer(200, X, full)

    told = joiner("its own key is skipped, since another session pulls it: not signed before that has come").join(25, Y)
    told.worker_ready(30).tick(50).snapshot_arrived(100, TRUE).until_pull(200, Y, full, step=FRONTIER)
    yield told.catch_up(300, X, full, step=FRONTIER).answer(400, Y, full)

    told = _used("the replay proves it: same updates, same coefficients", TRUE, FULL)
    yield told.estimated(3_000, FRONTIER, *([5] * 16)).same(3_100, X, step=FRONTIER).ticks(3_150, 3_200)

    low = replica_of([*rounds(*BEFORE), mine(16)]).ledger
    told = joiner("its neighbour lists no span from S on: not signed before it is live", data=TRUE).worker_ready(30)
    told.tick(50).snapshot_arrived(100, TRUE).tell(200, X, head_of(low, step=FRONTIER)).answer(210, X, low, rounds=4)
    yield told.tick(300).answer(400, X, low)

    told = joiner("an exclusion below its step ends its use at once", data=TRUE)
    told.tick(50).snapshot_arrived(100, TRUE).tell(200, X, _pushed(exclude(OPEN, 2, STEP))).tick(250)
    yield told.tell(300, X, _pushed(exclude(OPEN, 2, 512))).tick(350)

    told = joiner("an exclusion that held before does not end its use, an earlier step of it does", data=TRUE)
    told.tell(30, X, _pushed(exclude(OPEN, 4, 512))).tick(50).snapshot_arrived(100, TRUE)
    told.tell(200, X, _pushed(exclude(OPEN, 2, STEP))).tick(250)
    yield told.tell(300, X, _pushed(exclude(OPEN, 4, 16))).tick(350)


def _pushed(statement: bytes) -> Statements:
    return Statements(request=0, statements=(statement,), is_last=True)


# --- proving


def _used(name: str, data: bytes, held: Sequence[bytes]) -> Story:
    """The joiner uses the file, and becomes live with what its neighbour holds."""
    told = joiner(name, data=data).worker_ready(30).tick(50).snapshot_arrived(100, data)
    full = replica_of(held).ledger
    return told.tell(200, X, head_of(full, step=FRONTIER)).answer(210, X, full)


def _proving() -> Iterator[Story]:
    false = _false()
    yield _used("the same updates give other coefficients: halts with the attestations", false, FULL).tick(300)

    late = [each for each in FULL if each != FULL[4]]
    yield _used(
        "an update has come since: nothing is proved, and nothing is wrong",
        encode_snapshot(OPEN, snapshot_of(late)),
        FULL,
    ).tick(300)

    told = _used("it counts more slots than anybody has: after 60 s nothing is proved", TRUE, late).join(220, Y)
    yield told.ticks(300, 30_000, 60_299, 62_300)

    few = [each for each in FULL if each not in FULL[4:10:3]]
    told = _used("some of what it counts comes: waits 60 s more for the rest", TRUE, few).join(220, Y).tick(300)
    yield told.push(50_000, X, FULL[4]).ticks(50_050, 52_100, 62_300, 111_000, 114_200)

    told = _used("the missing update comes in time: proved", TRUE, late)
    yield told.tick(300).push(1_000, X, FULL[4]).ticks(1_050, 2_299, 2_300)

    told = joiner("fewer slots, but an exclusion reaches below its step: nothing is proved", authors=(1, 3, 4))
    cut = [each for each in FULL if each not in FULL[4::3]]
    full = replica_of([])
    full.add_statement(exclude(OPEN, 2, 16))
    for each in cut:
        full.add(each)
    told.tell(30, X, _pushed(exclude(OPEN, 2, 16))).tick(50).snapshot_arrived(100, TRUE)
    yield told.tell(200, X, head_of(full.ledger, step=FRONTIER)).answer(210, X, full.ledger).tick(300)


# --- who seeks one, and what was told before


def _seeking() -> Iterator[Story]:
    yield joiner("a relay: asks for none, and seeks none", is_training=False).tick(50)

    useless = b"useless".ljust(200, b".")
    told = joiner("it was given a useless one: seeks no other, and asks in the usual order", data=useless)
    told.tick(50).snapshot_arrived(100, useless).tell(150, X, attested(TRUE, 4, 5, 6, 7)).tick(200)
    full = replica_of([*FULL, mine(16)]).ledger
    yield told.tell(300, X, head_of(full, step=FRONTIER)).answer(310, X, full, rounds=2)

    late = [each for each in FULL if each != FULL[4]]
    yield _used("it counts more slots than are here: 60 s are over to the millisecond", TRUE, late).ticks(300, 60_300)

    told = Story("what was told before it was live counts with what comes then", OPEN, held=FULL, is_training=False)
    told.tick(0).join(10, X, Y).tell(20, X, attested(TRUE, 1, 2)).same(30, X).tell(40, Y, attested(TRUE, 2, 3))
    told.tell(50, Y, AttestationsRequest()).leave(60, X)
    yield told.tell(70, Y, AttestationsRequest())
