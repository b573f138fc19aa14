"""Target ``ledger``: the one door and what follows from it, against a model that maps slots to sets of payloads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from protocol.crypto.hashing import Author
from protocol.errors import Ignore, Reject
from protocol.ledger.ledger import Ledger
from protocol.state.replica import Replica
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.envelopes import reason_to_reject, seed_bytes
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import holdings_of, seal, signer
from tests.support.manifests import small_manifest

MANIFEST = small_manifest(authors_max=3)
OTHER_RUN = small_manifest(clip=999)
AUTHORS, STEPS, VERSIONS = 4, (0, 1, 15, 16, 39), (5, -7, 1_000)
OPERATIONS_MAX = 16


@lru_cache(maxsize=4_096)
def record_of(author: int, step: int, scalar: int) -> bytes:
    """A valid record of the run."""
    return seal(MANIFEST, author, step, scalar)


Slots = dict[tuple[bytes, int], set[bytes]]  # payloads by slot, at most two


def check_ledger(data: bytes) -> None:
    """Records valid, copied, equivocating, early, damaged, signed again: verdicts and state are the model's."""
    choices = Choices(data)
    replica, slots = Replica(MANIFEST), Slots()
    records: list[bytes] = []
    for _ in range(OPERATIONS_MAX):
        if not choices.is_left:
            break
        record = _record(choices)
        horizon_step = choices.pick(STEPS) if choices.one_in(4) else None
        expected = _expected(slots, record, horizon_step)
        assert _verdict(replica, record, horizon_step) == expected
        if expected in ("ACCEPT", "VOID"):
            slots.setdefault(_slot(record), set()).add(record[:-64])
            records.append(record)
        if choices.one_in(8):
            replica.sum_some(choices.below(3))
    check_state(replica, slots, records)


def _record(choices: Choices) -> bytes:
    kind = choices.byte() % 8
    author, step, version = choices.below(AUTHORS), choices.pick(STEPS), choices.pick(VERSIONS)
    record = record_of(author, step, version)
    if kind < 5:
        return record
    if kind == 5:
        return seal(OTHER_RUN, author, step, 5)
    damaged = choices.changed(record)
    if kind == 6 or len(damaged) != len(record):
        return damaged
    head = signer(author).author + damaged[32:36]
    payload = head + seed_bytes(MANIFEST, head) + damaged[44:46]
    return payload + signer(author).sign(b"sfnode/envelope1" + MANIFEST.run_id + payload)


def _slot(record: bytes) -> tuple[bytes, int]:
    return record[:32], int.from_bytes(record[32:36], "big")


def _expected(slots: Slots, record: bytes, horizon_step: int | None) -> str:
    """SPEC 6.2 and 7: the cheap rules, then what is usable, then seed, key and signature."""
    reason = reason_to_reject(MANIFEST, record)
    if reason is not None and reason not in ("SEED", "AUTHOR_KEY", "SIGNATURE"):
        return reason
    slot = _slot(record)
    held = slots.get(slot, set())
    if len(held) == 2:
        return "SLOT_VOID"
    if record[:-64] in held:
        return "ALREADY_HELD"
    if not held and horizon_step is not None and slot[1] > horizon_step:
        return "TOO_EARLY"
    authors = {author for author, _ in slots}
    if slot[0] not in authors and len(authors) >= MANIFEST.authors_max:
        return "AUTHORS_FULL"
    return reason or ("VOID" if held else "ACCEPT")


def _verdict(replica: Replica, record: bytes, horizon_step: int | None) -> str:
    ledger = replica.ledger
    before = (ledger.updates, ledger.void_slots)
    try:
        _, voided = replica.add(record, horizon_step=horizon_step)
    except (Reject, Ignore) as refusal:
        assert (ledger.updates, ledger.void_slots) == before
        return reason_of(refusal)
    grown = (1, 0) if voided is None else (-1, 1)
    assert (ledger.updates - before[0], ledger.void_slots - before[1]) == grown
    return "ACCEPT" if voided is None else "VOID"


def check_state(replica: Replica, slots: Slots, records: list[bytes]) -> None:
    """Counts, order and digests follow from the set alone."""
    ledger = replica.ledger
    counting = {next(iter(held)) for held in slots.values() if len(held) == 1}
    assert {envelope.payload for envelope in ledger.slots.envelopes()} == counting
    assert (ledger.updates, ledger.void_slots) == (len(counting), sum(len(held) == 2 for held in slots.values()))
    authors = {author for author, _ in slots}
    assert ledger.authors() == {author: max(step for a, step in slots if a == author) for author in authors}
    assert replica.state_digest() == replica.replayed_digest()
    backwards = Ledger(MANIFEST)
    for record in reversed(records):
        backwards.add(record)
    assert backwards.root() == ledger.root()
    for span, _ in ledger.slots.span_digests():
        for author in authors:
            assert (
                holdings_of(ledger, span, Author(author)).digest == holdings_of(backwards, span, Author(author)).digest
            )


def ledger_seeds() -> Iterator[bytes]:
    """Each author, step and version; copies, second and third versions, and each kind of fault."""
    yield bytes((0, 0, 0, 0, 0, 0) * 4)
    yield bytes(part for version in range(3) for part in (0, 1, 2, version, 0, 0))
    yield bytes(part for author in range(4) for part in (0, author, author, 0, 0, 0))
    for kind in (5, 6, 7):
        yield bytes(
            part for how in range(4) for at in (0, 33, 40, 45, 80) for part in (kind, 1, 1, 1, how, at, 77, 0, 0)
        )
    for number in range(12):
        yield bytes((number * 31 + index * (number + 2)) % 256 for index in range(96))


TARGETS = {"ledger": Target(check=check_ledger, seeds=ledger_seeds)}
