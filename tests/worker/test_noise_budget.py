"""What a node's noise guarantees: counted from its own messages, across lives, and where it ends the measuring."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from protocol.crypto.keys import Signer
from protocol.events import EstimateSkipped, TrainingSwitched, WorkerReady
from sfnode.privacy import RowsOfStep, RowUses, epsilon
from sfnode.worker.noise_budget import NoiseBudget
from sfnode.worker_protocol.training_config import NoiseConfig
from tests.support.manifests import small_manifest
from tests.worker.test_trainer import running

DENSE = small_manifest(core="dense", steps=12)
AUTHOR = Signer(b"alice".ljust(32, b".")).author
ROWS = 40


def message(step: int, rows: int = 4) -> RowsOfStep:
    return step, rows


def most(messages: list[RowsOfStep]) -> int:
    return RowUses(DENSE, AUTHOR, ROWS).most_with(messages)


def budget_of(sent: list[RowsOfStep], epsilon_max: float | None = None) -> NoiseBudget:
    return NoiseBudget(DENSE, AUTHOR, NoiseConfig(multiplier=2.0, epsilon_max=epsilon_max), lambda: sent)


async def test_noise_budget__life_that_goes_on__counts_as_one_life_does() -> None:
    first = budget_of([])
    before = await first.begin(ROWS)
    every_step = [message(step, DENSE.method.directions) for step in range(12)]
    assert (before.uses, before.epsilon, before.uses_at_end) == (0, 0.0, most(every_step))
    sent = [message(0), message(1), message(3)]
    for each in sent:
        assert await first.admits(each)
        first.spend(each)
    second = budget_of(sent)
    found = await second.begin(ROWS)
    assert first.statistics is not None
    assert (found.uses, found.epsilon) == (first.statistics.uses, first.statistics.epsilon)
    assert (found.uses, found.epsilon) == (most(sent), epsilon(2.0, most(sent), 1e-5))
    assert found.uses_at_end == most([*sent, *every_step[4:]]) < before.uses_at_end + 4
    assert found.epsilon_at_end == epsilon(2.0, found.uses_at_end, 1e-5)


async def test_noise_budget__messages_that_peers_return_after_the_start__count_at_the_first_step() -> None:
    sent: list[RowsOfStep] = []
    budget = budget_of(sent)
    await budget.begin(ROWS)
    sent += [message(step) for step in range(6)]  # the disk had lost them
    assert await budget.admits(message(6))
    budget.spend(message(6))
    assert budget.statistics is not None and budget.statistics.uses == most([*sent, message(6)])


async def test_noise_budget__many_messages__are_not_counted_in_the_thread_that_the_node_lives_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10,000 steps of an earlier life stopped the node for half a minute, at its start and at its first step."""
    here, counting, add = threading.get_ident(), list[bool](), RowUses.add

    def watched(uses: RowUses, messages: Iterable[RowsOfStep]) -> None:
        counting.append(threading.get_ident() == here)
        add(uses, messages)

    monkeypatch.setattr(RowUses, "add", watched)
    await budget_of([message(step) for step in range(6)]).begin(ROWS)
    assert counting == [False, False]


async def test_trainer__budget_is_spent__training_is_off_before_the_next_step_begins(tmp_path: Path) -> None:
    """A bug once: the overseer looks once a second, and fourteen further steps were reserved and skipped by then."""
    budget = budget_of([], epsilon_max=0.01)
    async with running(tmp_path) as bench:
        bench.trainer._budget = budget
        assert await bench.next() == WorkerReady()
        await budget.begin(ROWS)
        bench.estimate(0)
        assert [await bench.next(), await bench.next()] == [TrainingSwitched(is_on=False), EstimateSkipped(step=0)]


async def test_noise_budget__limit__ends_before_it_is_exceeded_and_says_why() -> None:
    limit = epsilon(2.0, 2, 1e-5)
    budget = budget_of([], epsilon_max=limit)
    await budget.begin(ROWS)
    sent = []
    for step in range(12):
        if not await budget.admits(message(step)):
            break
        sent.append(message(step))
        budget.spend(message(step))
    assert most(sent) <= 2 < most([*sent, message(len(sent))])
    assert budget.statistics is not None and budget.statistics.epsilon <= limit
    assert f"--epsilon-max is {limit:g}" in budget.spent
    assert not await budget.admits(message(11, rows=1)), "what is spent stays spent"


@pytest.mark.parametrize(("limit", "text"), [(None, ""), (8.0, "; it stops before 8 (--epsilon-max)")])
async def test_privacy_statistics__in_words__say_both_epsilons_and_their_messages(
    limit: float | None, text: str
) -> None:
    sent = [message(0)]
    found = await budget_of(sent, limit).begin(ROWS)
    assert found.in_words() == (
        f"noise 2: epsilon {found.epsilon:.1f} (delta 1e-05), each row in at most {most(sent)} messages so far; at the "
        f"end at most {found.epsilon_at_end:.1f}, {found.uses_at_end} messages{text}"
    )
