"""Vectors of ledgers (SPEC 4.5, 7): records in, verdicts, digests and coefficients out, in several orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from protocol.crypto.hashing import seed_of
from protocol.crypto.keys import Signer
from protocol.ledger.digest_buckets import shard_of
from protocol.run.manifest import Manifest, coefficient_max
from protocol.run.method import CoreKind
from protocol.subspace.directions import canonical_coordinates, rademacher_signs
from tests.support.ledgers import signer
from tests.vectors.ledger_events import Player
from tests.vectors.notation import Case, Document, case, compact, document
from tests.vectors.runs import (
    DENSE,
    EXAMPLE,
    NORMALISED,
    OF_2_BITS,
    OF_4_BITS,
    ROUNDS,
    ROUNDS_RADEMACHER,
    constant,
    dense_run,
    record,
    run,
    texts,
)

_MATRIX = {"name": "a", "kind": "matrix", "rows": 4, "cols": 4}
_VECTOR = {"name": "b", "kind": "vector", "rows": 4, "cols": 0}

TWO_AUTHORS = run({"rank": 4}, authors_max=2, tensors=[_MATRIX])
SPANS = run({"rank": 2, "local_steps": 3, "epoch_steps": 513, "clip": 9}, steps=3_078, tensors=[_MATRIX, _VECTOR])
LONGEST = run({"rank": 1, "epoch_steps": 1 << 20, "clip": 9}, steps=1 << 20, authors_max=4, tensors=[_MATRIX])
FADING = run({"rank": 1, "epoch_steps": 2}, steps=4, schedule={"kind": "linear", "weight_start": 3, "weight_end": 0})
# C_max is reached by so few records: every slot of every author, all scalars at the clip, the largest weight.
_LARGE = {"clip": 32_767, "directions": 256}
LARGEST_R1 = run(
    {**_LARGE, "rank": 1, "local_steps": 4, "epoch_steps": 8},
    steps=8,
    authors_max=2,
    tensors=[_MATRIX, _VECTOR],
    schedule=constant(1 << 16),
)
LARGEST_R128 = run(
    {**_LARGE, "rank": 128, "epoch_steps": 1, "core": "rademacher"},
    steps=2,
    authors_max=1,
    tensors=[_MATRIX],
    schedule=constant(1 << 16),
)
LARGEST_DENSE = dense_run({"energy_max": 8 * 127**2}, authors_max=2)
MANIFESTS = {
    "example": EXAMPLE,
    "normalised": NORMALISED,
    "rounds": ROUNDS,
    "rounds, Rademacher": ROUNDS_RADEMACHER,
    "two authors": TWO_AUTHORS,
    "spans": SPANS,
    "longest": LONGEST,
    "fading": FADING,
    "largest, r = 1": LARGEST_R1,
    "largest, r = 128": LARGEST_R128,
    "dense": DENSE,
    "largest, dense": LARGEST_DENSE,
    "dense, 4 bits": OF_4_BITS,
    "dense, 2 bits": OF_2_BITS,
}
_NAMES = {manifest.run_id: name for name, manifest in MANIFESTS.items()}


def ledgers() -> Document:
    """ledgers.json"""
    groups = (
        *(_worked, _orders, _ignored, _early, _full, _rejected, _rounds, _spans_and_epochs, _zeros, _limits),
        _dense,
    )
    about = "Ledgers: verdicts, digests and states after given records: SPEC 7"
    return document(about, [made for group in groups for made in group()], manifests=texts(MANIFESTS))


def _ledger(name: str, manifest: Manifest, records: Sequence[bytes], *plays: Callable[[Player], object]) -> Case:
    players = [Player(manifest, records) for _ in plays]
    for player, play in zip(players, plays, strict=True):
        play(player)
    given = {"manifest": _NAMES[manifest.run_id], "records": [_written(data) for data in records]}
    return case(name, "ledger", given, {"runs": [player.events for player in players]})


def _written(data: bytes) -> object:
    parts = compact(data, b"\x7f\xff", b"\x80\x01", readable=False)
    return parts[0] if len(parts) == 1 else parts


def _worked() -> Iterator[Case]:
    """The numbers of SPEC 7.4 and 7.5."""
    first, second = record(EXAMPLE, 7, -300), record(EXAMPLE, 7, -299)

    def forward(run: Player) -> object:
        return run.look(spans=True).add(0).look(spans=True).add(1, expect="VOID").look(spans=True)

    def backward(run: Player) -> object:
        return run.add(1).add(0, expect="VOID").look(spans=True)

    yield _ledger("worked example: empty, one update, void", EXAMPLE, [first, second], forward, backward)


def _orders() -> Iterator[Case]:
    """Three authors, steps in all three epochs, slots with two and three versions: any order ends the same."""
    steps = (0, 1, 15, 16, 17, 39)
    pool = [record(EXAMPLE, step, 100 * author - step, author=signer(author)) for author in range(3) for step in steps]
    pool += [record(EXAMPLE, 0, 901, author=signer(1)), record(EXAMPLE, 39, 902, author=signer(2))]
    pool += [record(EXAMPLE, 16, value, author=signer(1)) for value in (903, 904)]
    order = list(range(len(pool)))
    thirds = order[1::3] + order[2::3] + order[::3]

    def in_order(chosen: list[int], pause: int | None = None) -> Callable[[Player], object]:
        def play(run: Player) -> object:
            run.add_any(*chosen[: pause or 0])
            if pause:
                run.look()
            return run.add_any(*chosen[pause or 0 :]).look(spans=True)

        return play

    plays = in_order(order, 18), in_order(order[::-1], 9), in_order(thirds), in_order(order + order)
    yield _ledger("orders: every order gives the same digests", EXAMPLE, pool, *plays)


def _unsigned(data: bytes) -> bytes:
    return data[:-64] + bytes(64)


def _ignored() -> Iterator[Case]:
    first, second, third = (record(EXAMPLE, 20, value) for value in (1, 2, 3))
    records = [first, second, third, _unsigned(first), _unsigned(second), _unsigned(third)]

    def play(run: Player) -> object:
        run.add(0).add(0, 3, expect="ALREADY_HELD").add(4, 5, expect="SIGNATURE").look()
        run.add(1, expect="VOID").look().add(0, 1, 2, 3, 4, 5, expect="SLOT_VOID")
        return run.look(spans=True)

    yield _ledger("already held, void: signatures are not looked at", EXAMPLE, records, play)


def _early() -> Iterator[Case]:
    records = [record(EXAMPLE, step, value) for step, value in ((10, 1), (11, 1), (11, 2), (11, 3))]
    records += [_unsigned(record(EXAMPLE, 12, 1)), record(EXAMPLE, 12, 2_000), record(EXAMPLE, 40, 1)]

    def play(run: Player) -> object:
        run.add(0, expect="TOO_EARLY", horizon=9).look().add(0, horizon=10)
        run.add(1, expect="TOO_EARLY", horizon=10).add(1)
        # A slot that holds something is not new: no horizon concerns it.
        run.add(1, expect="ALREADY_HELD", horizon=10).add(2, expect="VOID", horizon=0)
        run.add(3, expect="SLOT_VOID", horizon=0).look()
        # What costs less than a signature comes before the horizon, the signature after it.
        run.add(4, expect="TOO_EARLY", horizon=11).add(4, expect="SIGNATURE", horizon=12)
        return run.add(5, expect="SCALAR_RANGE", horizon=11).add(6, expect="STEP_RANGE", horizon=11).look(spans=True)

    yield _ledger("too early: the horizon and what it does not concern", EXAMPLE, records, play)


def _full() -> Iterator[Case]:
    def made(author: int, step: int, value: int) -> bytes:
        return record(TWO_AUTHORS, step, value, author=signer(author))

    records = [made(0, 0, 1), made(0, 0, 2), made(1, 3, 3), made(2, 3, 4), _unsigned(made(2, 3, 4)), made(1, 20, 5)]
    records += [made(1, 3, 6), made(0, 30, 7)]

    def play(run: Player) -> object:
        run.add(0).add(1, expect="VOID").add(2)  # an author all of whose slots are void keeps their place
        run.add(3, 4, expect="AUTHORS_FULL").add(3, expect="TOO_EARLY", horizon=2).look()
        return run.add(5).add(6, expect="VOID").add(7).add(3, expect="AUTHORS_FULL").look(spans=True)

    def other(run: Player) -> object:
        """Order decides who finds a place: the known limit of SPEC 7.3."""
        return run.add(3).add(4, expect="ALREADY_HELD").add(5).add(0, 1, expect="AUTHORS_FULL").look()

    yield _ledger("authors full", TWO_AUTHORS, records, play, other)


def _rejected() -> Iterator[Case]:
    """A rejected record changes nothing."""
    good = record(EXAMPLE, 7, -300)
    flipped = good[:43] + bytes([good[43] ^ 1]) + good[44:]
    records = [good, good[:-1], record(EXAMPLE, 41, 1), record(EXAMPLE, 8, 1_001), flipped, _unsigned(good)]

    def play(run: Player) -> object:
        run.add(1, expect="SIZE").add(2, expect="STEP_RANGE").add(3, expect="SCALAR_RANGE").add(4, expect="SEED")
        return run.add(5, expect="SIGNATURE").look(spans=True).add(0).look()

    yield _ledger("rejected records leave no trace", EXAMPLE, records, play)


def _rounds() -> Iterator[Case]:
    for manifest in (ROUNDS, ROUNDS_RADEMACHER):
        records = [
            record(manifest, step, *[value - step, -7, 100, -100, 0, author], author=signer(author))
            for author in range(2)
            for step, value in ((0, 3), (3, 50), (6, -90), (9, 99))
        ]
        records.append(record(manifest, 3, 1, 2, 3, 4, 5, 6, author=signer(1)))

        def play(run: Player) -> object:
            run.add(0).look().add(1).look().add(2, 3, 4, 5, 6, 7).look()
            return run.add(8, expect="VOID").look(spans=True)

        def backward(run: Player) -> object:
            return run.add(8, 7, 6).add(5, expect="VOID").add(4, 3, 2, 1, 0).look()

        yield _ledger(f"rounds of three steps: {manifest.method.core.value}", manifest, records, play, backward)
    scalars = (14, -28, 56, 7, 32, -32, 32, -32)
    records = [record(NORMALISED, step, *scalars, author=signer(step)) for step in (0, 14, 16, 38)]
    yield _ledger("normalised", NORMALISED, records, lambda run: run.add(0, 1, 2, 3).look(spans=True))


def _spans_and_epochs() -> Iterator[Case]:
    """Rounds on both sides of the bounds of spans (1,024 steps) and epochs (513 steps), authors that share a shard."""
    twins = _sharing_a_shard()
    steps = (0, 510, 513, 1_023, 1_026, 2_046, 2_049, 3_075)
    records = [record(SPANS, step, step % 9, 9, -9, author=author) for author in twins for step in steps]
    records += [record(SPANS, 1_023, 9, 9, 9, author=twins[0]), record(SPANS, 2_049, 1, 1, 1, author=twins[1])]
    order = list(range(16))

    def play(run: Player) -> object:
        return run.add(*order).look(spans=True).add(16, 17, expect="VOID").look(spans=True)

    def backward(run: Player) -> object:
        return run.add_any(*range(17, -1, -1)).look()

    yield _ledger("spans and epochs: rounds at their bounds", SPANS, records, play, backward)
    last = [record(LONGEST, step, 9) for step in (0, 1_047_551, 1_047_552, 1_048_575)]
    yield _ledger("spans: the last of 1,024", LONGEST, last, lambda run: run.add(3, 2, 1, 0).look(spans=True))


def _sharing_a_shard() -> list[Signer]:
    """Two authors in one shard, the one with the smaller key second: the order within a shard is that of keys."""
    seen: dict[int, Signer] = {}
    for number in count():
        author = signer(number)
        other = seen.setdefault(shard_of(author.author), author)
        if other is not author and author.author < other.author:
            return [other, author]
    raise AssertionError


def _zeros() -> Iterator[Case]:
    """Epochs whose coefficients are all zero are not in the state digest, however they came to be so."""
    last = [record(FADING, step, 5, author=signer(step)) for step in (0, 2, 3)]
    yield _ledger(
        "zeros: the weight of the last step is 0", FADING, last, lambda run: run.add(2).look().add(1, 0).look()
    )
    # A vector of rank 1 and a matrix of rank 1 under canonical cores: amounts cancel when the signs are the same.
    pair = _cancelling_pair()
    yield _ledger("zeros: two updates cancel", FADING, pair, lambda run: run.add(0).look().add(1).look(spans=True))
    nothing = [record(EXAMPLE, 3, 0)]
    yield _ledger("zeros: a scalar of 0 counts", EXAMPLE, nothing, lambda run: run.add(0).look(spans=True))


def _cancelling_pair() -> list[bytes]:
    """Two authors whose directions at step 0 have the same signs in all tensors, with opposite scalars."""
    seen: dict[tuple[int, ...], Signer] = {}
    for number in count():
        author = signer(number)
        signs = tuple(_signs_of(FADING, author, 0)[0].tolist())
        other = seen.setdefault(signs, author)
        if other is not author:
            return [record(FADING, 0, value, author=one) for value, one in ((77, other), (-77, author))]
    raise AssertionError


def _signs_of(manifest: Manifest, author: Signer, step: int) -> NDArray[np.int64]:
    """int64[D K, P]: the sign with which each direction enters the first coefficient of every tensor.

    For a canonical core this is its sign alone: r must be 1, so that it always meets the first coefficient.
    """
    method, tensors = manifest.method, len(manifest.tensors)
    seed = seed_of(manifest.run_id, author.author, step)
    numbers = np.arange(method.scalars, dtype=np.uint32)
    if method.core is CoreKind.CANONICAL:
        assert method.rank == 1
        signs: NDArray[np.int64] = canonical_coordinates([seed], numbers, tensors, method.rank)[2][0]
        return signs
    a, b = rademacher_signs([seed], numbers, tensors, method.rank)
    return a[0, :, :, 0].astype(np.int64) * b[0, :, :, 0]


def _limits() -> Iterator[Case]:
    """SPEC 4.5 at its limit: coefficient (0, 0) of tensor 0 reaches C_max, and minus C_max, exactly."""
    for manifest, authors, last in ((LARGEST_R1, 2, 4), (LARGEST_R128, 1, 0)):
        for sign in (1, -1):
            records = [
                record(
                    manifest,
                    step,
                    *(sign * 32_767 * _signs_of(manifest, author, step)[:, 0]).tolist(),
                    author=author,
                )
                for author in map(signer, range(authors))
                for step in range(0, last + 1, 4)
            ]
            count_of = len(records)
            records.append(record(manifest, 0, *[0] * manifest.method.scalars, author=signer(0)))

            def play(run: Player, *, count_of: int = count_of, limit: int = sign * coefficient_max(manifest)) -> object:
                run.add(*range(count_of)).look()
                assert run.replica.coefficients().flat(0)[0] == limit
                return run.add(count_of, expect="VOID").look()

            name = f"limit: r = {manifest.method.rank}, {sign * coefficient_max(manifest)}"
            yield _ledger(name, manifest, records, play)


def _dense() -> Iterator[Case]:
    """Sums over rows, and their number (SPEC 4.7): in any order, late, void, of zeros, and at their limit."""

    def made(author: int, step: int, rows: int, *numbers: int) -> bytes:
        return record(DENSE, step, rows, *numbers, *[0] * (8 - len(numbers)), author=signer(author))

    records = [made(author, step, author + 1, 9, -author, step, 127) for author in (0, 1, 2) for step in (0, 2, 5)]
    records += [made(2, 3, 4), made(0, 2, 4, 1, 2, 3), made(0, 2, 3, 1, 2, 3)]

    def play(run: Player) -> object:
        run.add(*range(9)).look().add(10, expect="VOID").look().add(11, expect="SLOT_VOID")
        return run.add(9).look(spans=True)

    def backward(run: Player) -> object:
        return run.add(10, *range(9, 1, -1)).add(11, expect="VOID").add(1, expect="SLOT_VOID").add(0).look()

    yield _ledger("dense: late messages, a void slot, rows whose sum is zero", DENSE, records, play, backward)
    yield from _packed()
    limit = coefficient_max(LARGEST_DENSE)
    for sign in (1, -1):
        full = [record(LARGEST_DENSE, 1, 4, *[sign * 127] * 8, author=signer(author)) for author in (0, 1)]

        def fill(run: Player, *, limit: int = sign * limit) -> object:
            run.add(0, 1).look()
            assert run.replica.coefficients().flat(1).tolist() == [8, *[limit] * 8]
            return run

        yield _ledger(f"limit: dense, {sign * limit}", LARGEST_DENSE, full, fill)


def _packed() -> Iterator[Case]:
    """Sums of numbers of 4 and of 2 bits."""
    for bits, manifest, clip in ((4, OF_4_BITS, 7), (2, OF_2_BITS, 1)):
        records = [
            record(manifest, step, author + 1, clip, -1, 0, -clip, 1, author=signer(author))
            for author in (0, 1, 2)
            for step in (0, 5)
        ]

        def play(run: Player, *, clip: int = clip) -> object:
            run.add(*range(6)).look()
            assert run.replica.coefficients().flat(5).tolist() == [6, 6 * clip, -6, 0, -6 * clip, 6]
            return run

        yield _ledger(f"dense: numbers of {bits} bits", manifest, records, play)
