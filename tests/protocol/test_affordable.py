"""How many directions a node measures: by its own times and those of others, and what comes of it among many."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from protocol.crypto.hashing import Author
from protocol.node.measured_directions import AffordableDirections
from protocol.node.step_clock import StepClock
from tests.support.manifests import small_manifest

MANIFEST = small_manifest(steps=8_192, directions=16)
METHOD = MANIFEST.method
ALL = METHOD.directions
A, B, C = (Author(bytes([number]) * 32) for number in range(3))


def update(directions: int) -> tuple[int, ...]:
    return (7,) * directions + (0,) * (ALL - directions)


def chosen(own_ms: int, *others: tuple[int, int]) -> int:
    """With one own round of ``own_ms``, and others by interval and directions."""
    made = AffordableDirections(METHOD)
    made.measured(own_ms)
    names = [Author(bytes([9, number]) * 16) for number in range(len(others))]
    for author, (_, directions) in zip(names, others, strict=True):
        made.hear(author, update(directions))
    intervals = {author: interval_ms for author, (interval_ms, _) in zip(names, others, strict=True)}
    made.choose(intervals, names)
    return made.chosen


@pytest.mark.parametrize(
    ("own_ms", "others", "expected"),
    [
        (1_000, [], ALL),
        (1_250, [(1_000, ALL)], ALL),
        (1_260, [(1_000, ALL)], ALL),  # one late round is no reason
        (4_000, [(1_000, ALL)], ALL),
        (4_001, [(1_000, ALL)], 3),
        (8_000, [(1_000, ALL)], 2),
        (100_000, [(1_000, ALL)], 1),
        (999, [(1_000, ALL)], ALL),
        (1_000, [(1_000, 4)], ALL),  # with all of them it would take the other four times as long
        (16_001, [(1_000, 4)], 3),
        (8_000, [(1_000, ALL), (8_000, ALL)], ALL),  # the fast one is alone
        (8_000, [(1_000, ALL), (1_000, ALL), (8_000, ALL)], 2),
        (8_001, [(1_000, ALL), (8_000, ALL), (9_000, ALL)], ALL),
        (0, [(0, ALL)], ALL),
        (10, [(0, ALL)], 1),
    ],
)
def test_choice__own_time_and_those_of_others__are_as_many_as_fit(
    own_ms: int, others: list[tuple[int, int]], expected: int
) -> None:
    assert chosen(own_ms, *others) == expected


def test_choice__forgotten_author__does_not_count() -> None:
    made = AffordableDirections(METHOD)
    made.measured(8_000)
    for author in (A, B):
        made.hear(author, update(ALL))
    made.keep([B])
    made.choose({B: 8_000}, [A, B])
    assert made.chosen == ALL


@dataclass
class Machine:
    """A machine in virtual time."""

    author: Author
    round_ms: int
    clock: StepClock
    is_measuring: bool = False
    measured: list[int] = field(default_factory=list)


class Together:
    """Machines by what a round of all directions takes them, connected without delay."""

    def __init__(self, round_ms: list[int], noise: float) -> None:
        authors = [Author(bytes([number + 1]) * 32) for number in range(len(round_ms))]
        self.machines = [
            Machine(author, took_ms, StepClock(MANIFEST, author))
            for author, took_ms in zip(authors, round_ms, strict=True)
        ]
        self._chance, self._noise = random.Random(1), noise
        self._due: list[tuple[int, int, int]] = []
        self._highest: dict[Author, int] = {}

    def run(self, end_ms: int) -> None:
        """From the start to the end."""
        now_ms = 0
        while now_ms < end_ms:
            idle = [number for number, each in enumerate(self.machines) if not each.is_measuring]
            for number in idle:
                self._try_start(number, now_ms)
            clocks = [each.clock for each in self.machines if not each.is_measuring]
            rests = [now_ms + max(1, clock.rest_ms(now_ms)) for clock in clocks]
            now_ms = min([*rests, *(first for first, _, _ in self._due[:1])])
            while self._due and self._due[0][0] <= now_ms:
                _, number, step = heapq.heappop(self._due)
                self._finish(self.machines[number], step, now_ms)

    def _try_start(self, number: int, now_ms: int) -> None:
        machine = self.machines[number]
        machine.clock.resume_after(self._highest.get(machine.author, -1))
        step = machine.clock.try_start(self._highest, now_ms)
        if step is None:
            return
        machine.is_measuring = True
        machine.measured.append(machine.clock.affordable.chosen)
        took_ms = machine.round_ms * machine.measured[-1] / ALL
        took_ms *= self._chance.uniform(1 - self._noise, 1 + self._noise)
        heapq.heappush(self._due, (now_ms + round(took_ms), number, step))

    def _finish(self, done: Machine, step: int, now_ms: int) -> None:
        done.is_measuring, self._highest[done.author] = False, step
        done.clock.step_finished(now_ms, is_measured=True)
        for other in self.machines:
            if other is not done:
                other.clock.hear(done.author, update(done.measured[-1]), now_ms)


def run(round_ms: list[int], *, seconds: int, noise: float = 0.1) -> list[Machine]:
    together = Together(round_ms, noise)
    together.run(1_000 * seconds)
    return together.machines


@pytest.mark.parametrize("count", [2, 3, 8])
def test_equal_machines__whose_times_vary__measure_everything(count: int) -> None:
    machines = run([1_000] * count, seconds=60)
    assert {directions for each in machines for directions in each.measured} == {ALL}


@pytest.mark.parametrize("count", [2, 5])
def test_equal_machines__disturbed_in_turn__do_not_follow_each_other_down(count: int) -> None:
    machines = run([1_000] * count, seconds=300, noise=0.6)
    late = [directions for each in machines for directions in each.measured[len(each.measured) // 2 :]]
    assert sum(late) / len(late) > 0.8 * ALL


def test_slow_machine__among_quick_ones__measures_its_part_of_every_round() -> None:
    *quick, slow = run([1_000, 1_000, 1_000, 1_000, 4_000], seconds=120)
    assert {directions for each in quick for directions in each.measured} == {ALL}
    assert slow.measured[0] == ALL
    assert all(3 <= directions <= 5 for directions in slow.measured[2:])
    # Its pace is the median of all five, so that no one author sets it: with the four others alone this was 0.95.
    assert len(slow.measured) > 0.88 * len(quick[0].measured)


def test_machine__much_slower_than_a_block__still_measures_one() -> None:
    quick, _, slow = run([1_000, 1_000, 100_000], seconds=300)
    assert set(slow.measured[1:]) == {METHOD.shares}
    assert len(quick.measured) > 200  # held back a little: no more than eight rounds ahead of the lower median


@pytest.mark.parametrize(
    ("fixed_ms", "each_ms", "expected"),
    [
        (0, 62, [16, 16]),  # as quick as the others
        (0, 250, [16, 16, 4, 5, 5]),  # a quarter as quick: five take 1.25 s
        (900, 4, [16, 16]),  # nearly all of a round is the same for one and for all
        (700, 50, [16, 16, 10, 10]),
        (5_000, 0, [16, 3, 1, 1]),  # nothing helps
    ],
)
def test_machine__part_of_its_rounds_does_not_depend_on_directions__finds_what_fits(
    fixed_ms: int, each_ms: int, expected: list[int]
) -> None:
    made = AffordableDirections(METHOD)
    made.hear(A, update(ALL))
    found = [made.chosen]
    for _ in expected[1:]:
        made.measured(fixed_ms + each_ms * made.chosen)
        made.choose({A: 1_000}, [A])
        found.append(made.chosen)
    assert found == expected


def test_machine__others_measure_half_of_their_rounds__is_compared_with_whole_ones() -> None:
    made = AffordableDirections(METHOD)
    made.hear(A, update(ALL // 2))
    for _ in range(4):
        made.measured(1_000)
        made.choose({A: 500}, [A])
        assert made.chosen == ALL


def test_machine__something_else_before_each_measurement__its_own_time_counts() -> None:
    """A fault once: a slow node that evaluated before each of its steps measured everything, and missed most rounds."""
    busy = StepClock(MANIFEST, B)
    for step in range(3):
        busy.hear(A, update(ALL), 1_000 * step)
        assert busy.try_start({A: step}, 20_000 * step) is not None
        busy.step_finished(20_000 * step + 15_000, is_measured=True, took_ms=1_000 if step < 2 else 8_000)
        assert busy.affordable.chosen == ALL
    busy.hear(A, update(ALL), 3_000)
    assert busy.try_start({A: 3}, 60_000) is not None and busy.affordable.chosen == 2


def test_machine__late_now_and_then__measures_everything() -> None:
    """A demo beside other work lost a seventh of its rows: a node that was late once measured less."""
    made = AffordableDirections(METHOD)
    made.hear(A, update(ALL))
    for round_ms in (1_000, 3_900, 1_000, 2_000, 1_250, 4_000):
        made.measured(round_ms)
        made.choose({A: 1_000}, [A])
        assert made.chosen == ALL


def test_machine__once_disturbed__measures_everything_again_step_by_step() -> None:
    """A slow first round; afterwards a round takes 0.9 s for one direction and 0.96 s for all."""
    made = AffordableDirections(METHOD)
    made.hear(A, update(ALL))
    found = []
    for round_ms in (30_000, *[896 + 4 * count for count in range(1, ALL)]):
        made.measured(round_ms)
        made.choose({A: 1_000}, [A])
        found.append(made.chosen)
    assert found == list(range(1, ALL + 1))
