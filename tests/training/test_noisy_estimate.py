"""A dense message with noise: what goes into its sum, and that no row reaches it but by its own clipped gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.errors import OperatorError
from protocol.run.manifest import checked
from protocol.schema import to_plain
from protocol.subspace.basis_file import Bases, decode_basis_untrusted
from protocol.subspace.drawn_examples import example_indices
from sfnode.privacy import NoisySum, length_max
from sfnode.training import estimator
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData
from sfnode.worker_protocol.training_config import NoiseConfig
from tests.support.found_bases import dense_bases
from tests.support.manifests import small_manifest
from tests.support.reward_runs import reward_manifest
from tests.support.tiny_models import tiny_llama
from tests.training.test_dense_estimate import TASKS, every_task, some_tokens, some_words

SEED, ROWS = 77, 8


class WatchedSum(NoisySum):
    """Keeps what was added, by all of them."""

    seen: list[NDArray[np.float64]]  # set by the fixture

    def add(self, gradient: NDArray[np.float64]) -> None:
        self.seen.append(gradient)
        super().add(gradient)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.float64]]:
    """The gradients of all rows that were added."""
    WatchedSum.seen = []
    monkeypatch.setattr(estimator, "NoisySum", WatchedSum)
    return WatchedSum.seen


def session_of(data: TaskData, multiplier: float | None, **method: Any) -> Estimator:
    shared = SharedModel(tiny_llama())
    found, basis = dense_bases(shared, data, ROWS)
    manifest = replace(found.manifest, method=replace(found.manifest.method, **method))
    bases = Bases(checked(to_plain(manifest, as_rows=False)), basis.content)
    return Estimator(shared, bases, data, None if multiplier is None else NoiseConfig(multiplier=multiplier))


@every_task
def test_estimate__hardly_any_noise_and_a_long_clip__is_the_message_without_noise(task: str) -> None:
    data = TASKS[task]()
    plain, noisy = (session_of(data, each, energy_max=1 << 26).estimate(SEED, 3) for each in (None, 1e-6))
    assert np.abs(np.subtract(plain.scalars, noisy.scalars)).max() <= 1  # a number may lie between two
    assert any(plain.scalars[1:]) and noisy.loss == pytest.approx(plain.loss)


def test_estimate__rows_longer_than_the_clip__are_shortened_one_by_one(seen: list[NDArray[np.float64]]) -> None:
    session = session_of(some_words(), 1e-6, energy_max=400_000)
    limit = length_max(session.manifest.method, len(session.estimate(SEED, 3).scalars) - 1)
    lengths = [float(np.linalg.norm(row)) for row in seen]
    assert len(seen) == ROWS and min(lengths) < limit < max(lengths)
    mean = sum(row * min(1.0, limit / length) for row, length in zip(seen, lengths, strict=True)) / ROWS
    quantum = 2.0**session.manifest.method.quantum_exp
    found = np.array(session.estimate(SEED, 3).scalars[1:]) * quantum
    assert np.abs(found - np.clip(mean, -127 * quantum, 127 * quantum)).max() <= quantum


def test_estimate__one_row_becomes_a_long_one__leaves_the_others_as_they_were_to_the_bit(
    seen: list[NDArray[np.float64]],
) -> None:
    """In one batch, its length would change the padding of all, and so the last digits of their gradients."""
    session, data = session_of(some_words(), 1.0), some_words()
    (row, *_) = example_indices(session.manifest, SEED, 0, len(data.examples)).tolist()
    session.estimate(SEED, 3)
    examples = list(data.examples)
    examples[row] = Example(tokens=some_tokens(9, 29), label=1)
    session.data = replace(data, examples=tuple(examples))
    session.estimate(SEED, 3)
    before, after = seen[:ROWS], seen[ROWS:]
    same = [bool((one == other).all()) for one, other in zip(before, after, strict=True)]
    drawn = example_indices(session.manifest, SEED, 0, len(data.examples)).tolist()
    assert same == [each != row for each in drawn]


def test_estimator__noise_where_no_message_has_it__is_refused() -> None:
    """Python: the messages went out without noise, and nothing said so."""
    manifest, basis = reward_manifest()
    for bases in (Bases(small_manifest()), Bases(manifest, decode_basis_untrusted(manifest, basis))):
        with pytest.raises(OperatorError, match="dense cores from labels or texts alone"):
            Estimator(SharedModel(tiny_llama()), bases, some_words(), NoiseConfig(multiplier=1.0))


def test_estimate__noise__moves_each_message_in_its_own_way() -> None:
    session = session_of(some_words(), 1.0)
    assert session.estimate(SEED, 3).scalars != session.estimate(SEED, 3).scalars
