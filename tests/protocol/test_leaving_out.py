"""The first-order effect of leaving an author out, where the answer is known: losses that are linear."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.crypto import Author, hashing
from protocol.ledger.envelope import EnvelopeCodec
from protocol.limits import NORMALISED_CLIP
from protocol.run.manifest import Manifest
from protocol.run.method import CoreKind, ScalarKind
from protocol.state.coefficients import CoefficientLayout, Coefficients
from protocol.state.leave_one_out import LeavingOut, effects_of_leaving_out
from protocol.state.replica import Replica
from protocol.subspace import direction_factors, quantise_dense
from tests.support.ledgers import seal, signer
from tests.support.manifests import small_manifest

ALICE = signer(1).author


def one_coordinate(**method: Any) -> Manifest:
    """One tensor with a subspace of rank one: a direction is plus or minus one, and nothing is left to chance."""
    manifest = small_manifest(rank=1, alpha_exp=-3, quantum_exp=-2, **method)
    return replace(manifest, tensors=manifest.tensors[:1])


def direction(manifest: Manifest, author: int, step: int, local_step: int = 0) -> int:
    factors = direction_factors(manifest, hashing.seed_of(manifest.run_id, signer(author).author, step), local_step)
    return int(factors.a[0, 0, 0] * factors.b[0, 0, 0])


def held(manifest: Manifest, *records: bytes) -> dict[Author, LeavingOut | None]:
    replica = Replica(manifest)
    for record in records:
        replica.add(record)
    return effects_of_leaving_out(replica)


def measured(manifest: Manifest, author: int, step: int, slope: int) -> bytes:
    """A record of an author whose loss has ``slope``, in quanta, along the one coordinate."""
    return seal(manifest, author, step, slope * direction(manifest, author, step))


def test_leaving_out__linear_loss_along_one_coordinate__is_exact() -> None:
    """Alice moved the coordinate by -2^-3 w 12; along it the loss of Bob, who measured it twice, rises by 2^-2 20."""
    manifest = one_coordinate()
    records = [measured(manifest, 1, 3, 12), measured(manifest, 2, 4, 20), measured(manifest, 2, 9, 20)]
    told = held(manifest, *records)[ALICE]
    assert told is not None and told.updates == 1
    assert told.change == pytest.approx(2**-3 * manifest.weight(3) * 12 * 2**-2 * 20)


def test_leaving_out__slopes_that_differ__are_averaged_by_the_weights_of_their_steps() -> None:
    manifest = one_coordinate()
    records = [measured(manifest, 1, 3, 8), measured(manifest, 2, 0, 10), measured(manifest, 2, 15, -30)]
    told = held(manifest, *records)[ALICE]
    first, last = manifest.weight(0), manifest.weight(15)
    moved = 2**-5 * manifest.weight(3) * 8
    assert told is not None
    assert told.change == pytest.approx(moved * (10 * first - 30 * last) / (first + last))
    # Were the slopes products of many random coordinates, with their spread and with the mean once more.
    spread = np.hypot(10 * first, 30 * last), told.change / moved * np.hypot(first, last)
    assert told.error == pytest.approx(moved * np.hypot(*spread) / (first + last))


def test_leaving_out__author_who_went_uphill__would_be_better_left_out() -> None:
    """The one word against the slope is Mallory's own, which does not count for their part."""
    manifest = one_coordinate()
    lies = [measured(manifest, 3, step, -900) for step in range(5)]
    told = held(manifest, measured(manifest, 1, 0, 12), measured(manifest, 2, 0, 12), *lies)[signer(3).author]
    assert told is not None and told.change < 0


def test_leaving_out__normalised_scalars__are_in_units_of_the_root_mean_square() -> None:
    """Two directions of slopes s and -s, say, are sent as 32 and -32: one root mean square each."""
    manifest = one_coordinate(scalar=ScalarKind.NORMALISED.value, directions=2, clip=NORMALISED_CLIP)
    told = {}
    for author in (1, 2):
        factors = direction_factors(manifest, hashing.seed_of(manifest.run_id, signer(author).author, 2))
        signs = [int(sign) for sign in factors.a[:, 0, 0] * factors.b[:, 0, 0]]
        told[author] = seal(manifest, author, 2, *(32 * sign for sign in signs))
    effect = held(manifest, *told.values())[ALICE]
    assert effect is not None and effect.change == pytest.approx(2**-3 * manifest.weight(2) * 2 * 32)


def test_leaving_out__several_steps_in_a_message__each_has_its_weight() -> None:
    manifest = one_coordinate(local_steps=2)
    slopes = {1: (8, 0), 2: (10, -30)}
    records = [
        seal(manifest, author, 2, *(slope * direction(manifest, author, 2, k) for k, slope in enumerate(each)))
        for author, each in slopes.items()
    ]
    told = held(manifest, *records)[ALICE]
    first, second = manifest.weight(2), manifest.weight(3)
    assert told is not None
    assert told.change == pytest.approx(2**-5 * first * 8 * (10 * first - 30 * second) / (first + second))


def test_leaving_out__rounds_measured_in_part__weigh_by_the_directions_that_were_measured() -> None:
    """A slow machine measures its first directions only. The zeros of the others are no slopes of zero."""
    manifest = one_coordinate(directions=2, shares=1)
    factors = direction_factors(manifest, hashing.seed_of(manifest.run_id, signer(2).author, 4))
    first = int(factors.a[0, 0, 0] * factors.b[0, 0, 0])
    in_part = seal(manifest, 2, 4, 20 * first, 0)
    told = held(manifest, seal(manifest, 1, 3, 12 * direction(manifest, 1, 3), 0), in_part)[ALICE]
    assert told is not None
    assert told.change == pytest.approx(2**-3 * manifest.weight(3) * 12 * 2**-2 * 20)


def test_leaving_out__epoch_in_which_nobody_else_measured__is_not_in_it() -> None:
    manifest = one_coordinate()  # sixteen steps each
    together = [measured(manifest, 1, 3, 12), measured(manifest, 2, 4, 20)]
    told = held(manifest, *together, measured(manifest, 1, 20, 12))
    assert told[ALICE] == held(manifest, *together)[ALICE]


def test_leaving_out__one_author_alone__nothing_is_told() -> None:
    manifest = one_coordinate()
    assert held(manifest, measured(manifest, 1, 3, 12)) == {ALICE: None}


@pytest.mark.slow
@pytest.mark.parametrize("core", [CoreKind.CANONICAL, CoreKind.RADEMACHER])
def test_leaving_out__linear_loss_in_many_coordinates__lies_within_its_error(core: CoreKind) -> None:
    """Three authors measure the same gradient along directions of their own; the true change is a product of arrays.

    A run's name draws its directions: over eight runs, the differences are as large as the errors say.
    """
    in_errors: list[float] = []
    for number in range(8):
        manifest = small_manifest(rank=2, core=core.value, directions=8, alpha_exp=-20, quantum_exp=0, clip=10_000)
        manifest = replace(manifest, name=f"run {number}")
        gradient = np.random.default_rng(5).normal(size=CoefficientLayout(manifest).size) * 300
        records = [_along(manifest, gradient, author, step) for author in (1, 2, 3) for step in range(16)]
        told = held(manifest, *records)
        for author in (1, 2, 3):
            effect, own = told[signer(author).author], Coefficients(manifest)
            own.add(map(EnvelopeCodec(manifest).decode_untrusted, records[16 * (author - 1) : 16 * author]))
            true = 2.0**-20 * sum(float(own.flat(epoch) @ gradient) for epoch in own.epochs())
            assert effect is not None and effect.updates == 16
            assert 3 * effect.error < true
            in_errors.append((effect.change - true) / effect.error)
    assert 0.5 < np.sqrt(np.mean(np.square(in_errors))) < 1.5, in_errors


def _along(manifest: Manifest, gradient: np.ndarray, author: int, step: int) -> bytes:
    """A record of the slopes of a linear loss along the author's directions."""
    layout = CoefficientLayout(manifest)
    factors = direction_factors(manifest, hashing.seed_of(manifest.run_id, signer(author).author, step))
    slopes = np.zeros(manifest.method.directions)
    for index in range(len(manifest.tensors)):
        part = layout.tensor(gradient, index)
        a, b = factors.a[:, index].astype(float), factors.b[:, index].astype(float)
        slopes += np.einsum("di,ij,dj->d", a, part, b) if layout.is_matrix[index] else a @ part
    return seal(manifest, author, step, *(int(slope) for slope in slopes))


# --- dense cores


def dense_run(**fields: Any) -> Manifest:
    return small_manifest(core="dense", alpha_exp=-20, quantum_exp=-4, energy_max=200_000, **fields)


def gradients(manifest: Manifest, gradient: np.ndarray, noise: float, authors: int) -> list[bytes]:
    """Messages of a linear loss: of different rows, and of noise that falls with their number."""
    chance, records = np.random.default_rng(7), []
    for step in range(manifest.steps):
        for author in range(1, authors + 1):
            rows = int(chance.integers(1, manifest.method.directions + 1))
            mean = gradient + chance.normal(size=len(gradient)) * noise / np.sqrt(rows)
            records.append(seal(manifest, author, step, *quantise_dense(manifest.method, rows, mean)))
    return records


def moved_by(manifest: Manifest, records: list[bytes], author: int) -> np.ndarray:
    """What the author has moved in all steps, from two whole states: with everybody, and with all but them."""
    without = Replica(manifest), Replica(manifest)
    for record in records:
        without[0].add(record)
        if record[:32] != signer(author).author:
            without[1].add(record)
    states = [each.coefficients() for each in without]
    moved: np.ndarray = np.sum([states[0].core(step) - states[1].core(step) for step in range(manifest.steps)], axis=0)
    return moved[1:]


@pytest.mark.parametrize("authors", [2, 3, 5])
@pytest.mark.parametrize("noise", [0.5, 20.0])
def test_leaving_out__dense_and_linear_loss__lies_within_its_error(authors: int, noise: float) -> None:
    """Also where each message is mostly noise, which is in the model that the others have made, too."""
    manifest = dense_run(steps=12)
    gradient = np.random.default_rng(5).normal(size=manifest.numbers - 1)
    records = gradients(manifest, gradient, noise, authors)
    told = held(manifest, *records)
    for author in range(1, authors + 1):
        effect = told[signer(author).author]
        true = 2.0**-20 * float(moved_by(manifest, records, author) @ gradient)
        assert effect is not None and effect.updates == manifest.steps
        assert abs(effect.change - true) < 3 * effect.error
        assert noise > 1 or effect.error < true / 4


def test_leaving_out__dense_author_who_went_uphill__would_be_better_left_out() -> None:
    manifest = dense_run()
    gradient = np.random.default_rng(5).normal(size=manifest.numbers - 1)
    lies = gradients(manifest, -gradient, 0.5, 4)[3::4]
    told = held(manifest, *gradients(manifest, gradient, 0.5, 3), *lies)
    liar, honest = told[signer(4).author], told[signer(1).author]
    assert liar is not None and liar.change + 3 * liar.error < 0
    assert honest is not None and honest.change > 3 * honest.error


def test_leaving_out__dense_steps_that_differ__are_averaged_by_the_rows_of_their_messages() -> None:
    """Alice alone moved at step 5; Bob measured before and after it, of three rows and of one."""
    manifest = dense_run()
    records = [
        seal(manifest, 1, 5, 8, 10, *(0,) * 15),
        seal(manifest, 2, 4, 3, 20, *(0,) * 15),
        seal(manifest, 2, 9, 1, 60, *(0,) * 15),
    ]
    told = held(manifest, *records)[ALICE]
    moved = manifest.weight(5) * 10 / 2  # 8 rows, and 8 of noise
    assert told is not None and told.updates == 1
    assert told.change == pytest.approx(2.0**-24 * moved * (3 * 20 + 60) / 4, rel=1e-3)


def test_leaving_out__dense_step_that_nobody_else_measured_near__is_not_in_it() -> None:
    manifest = dense_run()
    alone = [seal(manifest, 1, step) for step in (1, 2, 3)]
    assert held(manifest, *alone) == {ALICE: None}
    told = held(manifest, *alone, seal(manifest, 2, 4))[ALICE]
    assert told is not None and told.updates == 1
