"""The states on which an author may have measured: what was in force then, not what counts today."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from protocol import timings
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.run.manifest import sign_manifest
from protocol.state.coefficients import Coefficients
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.worker.past_states import ROUNDS_AHEAD, PastStates
from tests.support.ledgers import exclude, seal, signer
from tests.support.manifests import OWNER, small_manifest

MANIFEST = small_manifest()
AUTHORS, STEPS = 3, 4
ME, EXPELLED, OTHER = (signer(number).author for number in range(AUTHORS))


def by_arrival() -> list[bytes]:
    """Round by round, of all authors."""
    return [seal(MANIFEST, author, step, 10 * author + step + 1) for step in range(STEPS) for author in range(AUTHORS)]


@contextlib.contextmanager
def past_of(folder: Path, records: Sequence[bytes], statements: Sequence[bytes] = ()) -> Iterator[PastStates]:
    with contextlib.closing(Store(DataDirectory(folder), sign_manifest(MANIFEST, OWNER))) as store:
        store.add(records, is_durable=False)
        store.add_statements(statements)
    with DataDirectory(folder).reading() as stored:
        replica = stored.replica(MANIFEST)
        yield PastStates(MANIFEST, replica.ledger, stored)


def digest_of(records: Sequence[bytes | Envelope]) -> bytes:
    codec = EnvelopeCodec(MANIFEST)
    state = Coefficients(MANIFEST)
    state.add(each if isinstance(each, Envelope) else codec.decode_untrusted(each) for each in records)
    return state.digest()


def decoded(record: bytes) -> Envelope:
    return EnvelopeCodec(MANIFEST).decode_untrusted(record)


def messages_of(author: bytes, records: Sequence[bytes]) -> list[Envelope]:
    return sorted((each for each in map(decoded, records) if each.author == author), key=lambda each: each.step)


@pytest.mark.parametrize("rounds_ahead", [-8, -2, -1, 0, 1, 2])
def test_by_step__message__all_own_earlier_rounds_and_those_of_the_others_up_to_there(
    tmp_path: Path, rounds_ahead: int
) -> None:
    records = by_arrival()
    chosen = messages_of(ME, records)
    with past_of(tmp_path, records) as past:
        for message, state in zip(chosen, past.by_step(chosen, rounds_ahead), strict=True):
            held = [
                each
                for each in map(decoded, records)
                if each.step < message.step + (0 if each.author == ME else rounds_ahead)
            ]
            assert state.digest() == digest_of(held)


def test_by_step__some_of_the_others_messages_are_lacking__all_own_ones_are_there(tmp_path: Path) -> None:
    records = by_arrival()
    chosen = messages_of(ME, records)[-1]
    kept = [each for each in map(decoded, records) if each.step < chosen.step]
    kept = [each for each in kept if each.author == ME or each.seed % 2]
    assert len(kept) < AUTHORS * (STEPS - 1)
    with past_of(tmp_path, records) as past:
        assert [each.digest() for each in past.by_step([chosen], lacking=2)] == [digest_of(kept)]


def test_by_step__author_expelled_later__was_in_force_while_they_were_at_work(tmp_path: Path) -> None:
    records = by_arrival()
    silent_from = 2  # the statement, from step 1 on, came when two rounds were done
    records = [each for each in records if decoded(each).author != EXPELLED or decoded(each).step < silent_from]
    late = [seal(MANIFEST, 0, 5, 60), seal(MANIFEST, 2, 5, 61)]
    chosen = messages_of(ME, [*records, *late])
    with past_of(tmp_path, [*records, *late], [exclude(MANIFEST, 1, 1)]) as past:
        states = [state.digest() for state in past.by_step(chosen)]
        fewer = [state.digest() for state in past.by_step(chosen, expulsions_more=-1)]
        counted = [state.digest() for state in past.counted(chosen)]
    earlier = [[each for each in map(decoded, records) if each.step < message.step] for message in chosen]
    without = [[each for each in held if each.author != EXPELLED or each.step < 1] for held in earlier]
    assert states[:3] == [digest_of(held) for held in earlier[:3]]
    assert states[-1] == digest_of(without[-1]) != digest_of(earlier[-1])
    assert fewer[-1] == digest_of(earlier[-1])
    assert counted == [digest_of(held) for held in without]


def test_by_step__message_of_the_expelled_themselves__their_own_updates_are_in(tmp_path: Path) -> None:
    records = by_arrival()
    message = messages_of(EXPELLED, records)[-1]
    with past_of(tmp_path, records, [exclude(MANIFEST, 1, 1)]) as past:
        state = next(past.by_step([message], expulsions_more=1))
        assert state.digest() == digest_of([each for each in map(decoded, records) if each.step < message.step])


def test_by_step__slot_that_became_void__counted_with_its_first_payload(tmp_path: Path) -> None:
    records = by_arrival()
    second = seal(MANIFEST, 2, 1, 99)
    chosen = messages_of(ME, records)[-1:]
    with past_of(tmp_path, [*records, second]) as past:
        (was,), (today,) = (
            [state.digest() for state in states] for states in (past.by_step(chosen), past.counted(chosen))
        )
    held = [each for each in map(decoded, records) if each.step < chosen[0].step]
    assert was == digest_of(held)
    assert today == digest_of([each for each in held if (each.author, each.step) != (OTHER, 1)])


def test_as_arrived__message__what_had_come_before_it(tmp_path: Path) -> None:
    records = by_arrival()
    ahead, message, after = seal(MANIFEST, 2, 5, 50), seal(MANIFEST, 0, 4, 51), seal(MANIFEST, 2, 4, 52)
    second = seal(MANIFEST, 2, 1, 99)
    with past_of(tmp_path, [*records, ahead, second, message, after]) as past:
        arrival = next(past.as_arrived([decoded(message)]))
        held = [each for each in (*records, ahead) if each != seal(MANIFEST, 2, 1, 22)]
        assert (arrival.state.digest(), arrival.is_late) == (digest_of(held), False)


def test_as_arrived__moments_before_the_message__less_and_less_of_the_others_and_all_of_its_author(
    tmp_path: Path,
) -> None:
    records = by_arrival()
    message = decoded(seal(MANIFEST, 0, 4, 51))
    held = [decoded(each) for each in records]
    with past_of(tmp_path, [*records, message.record]) as past:
        for moment, arrival in enumerate(past.as_arrived([message])):
            assert (arrival.moment, arrival.state.digest()) == (moment, digest_of(held))
            if others := [each for each in held if each.author != ME]:
                held.remove(others[-1])
    assert {each.author for each in held} == {ME}


def test_as_arrived__messages_after_moments_of_another__have_their_own_states(tmp_path: Path) -> None:
    records = by_arrival()
    chosen = messages_of(ME, records)
    with past_of(tmp_path, records) as past:
        found = {each.envelope.record: each.state.digest() for each in past.as_arrived(chosen) if not each.moment}
    assert found == {each.record: digest_of(records[: AUTHORS * each.step]) for each in chosen}


def test_as_arrived__expelled_before_it__are_out(tmp_path: Path) -> None:
    records = [each for each in by_arrival() if decoded(each).author != EXPELLED or decoded(each).step < 2]
    message = seal(MANIFEST, 0, 5, 51)
    with past_of(tmp_path, [*records, message], [exclude(MANIFEST, 1, 1)]) as past:
        arrival = next(past.as_arrived([decoded(message)]))
        kept = [each for each in map(decoded, records) if each.author != EXPELLED or each.step < 1]
        assert arrival.state.digest() == digest_of(kept)


def test_as_arrived__two_payloads_of_an_author_expelled_later__removed_each_other(tmp_path: Path) -> None:
    """The records of expelled authors hold no slot today: both payloads counted, and an honest author looked wrong."""
    records, second, message = by_arrival(), seal(MANIFEST, 1, 2, 99), seal(MANIFEST, 0, 4, 51)
    with past_of(tmp_path, [*records, second, message], [exclude(MANIFEST, 1, 1)]) as past:
        arrival = next(past.as_arrived([decoded(message)]))
        held = [each for each in map(decoded, records) if (each.author, each.step) != (EXPELLED, 2)]
        assert arrival.state.digest() == digest_of(held)


def test_as_arrived__two_payloads_of_an_author_expelled_before_it__are_out_once(tmp_path: Path) -> None:
    records = [each for each in by_arrival() if decoded(each).author != EXPELLED or decoded(each).step < 2]
    message = seal(MANIFEST, 0, 5, 51)
    with past_of(tmp_path, [*records, seal(MANIFEST, 1, 1, 99), message], [exclude(MANIFEST, 1, 1)]) as past:
        arrival = next(past.as_arrived([decoded(message)]))
        kept = [each for each in map(decoded, records) if each.author != EXPELLED or each.step < 1]
        assert arrival.state.digest() == digest_of(kept)


@pytest.mark.parametrize(("ahead", "is_late"), [(8, False), (9, True)])
def test_as_arrived__most_others_far_ahead__it_is_late(tmp_path: Path, ahead: int, is_late: bool) -> None:
    others = [seal(MANIFEST, author, 4 + ahead, 70 + author) for author in (1, 2)]
    message = seal(MANIFEST, 0, 4, 51)
    with past_of(tmp_path, [*by_arrival(), *others, message]) as past:
        arrival = next(past.as_arrived([decoded(message)]))
        assert arrival.is_late is is_late


def test_as_arrived__message_that_never_came__is_left_out(tmp_path: Path) -> None:
    with past_of(tmp_path, by_arrival()) as past:
        assert list(past.as_arrived([decoded(seal(MANIFEST, 0, 9, 3))])) == []


def test_rounds_ahead__the_most__is_what_the_clock_allows() -> None:
    assert max(ROUNDS_AHEAD) == timings.ROUNDS_AHEAD_MAX
