"""The benchmark of audits: who takes part in a simulated run, what comes of them, and how results add up."""

from __future__ import annotations

import random
from typing import cast

from benchmarks.audit_honesty.__main__ import summary
from benchmarks.audit_honesty.formats import FORMATS, StateEstimator
from benchmarks.audit_honesty.simulated_run import CHEATS, EQUIVOCATOR, EXPELLED, HONEST, SimulatedRun
from protocol.crypto.hashing import seed_of
from protocol.state.coefficients import Coefficients
from protocol.state.replica import Replica
from tests.support.manifests import OWNER, small_manifest

STEPS = 40


class FakeEstimator:
    """Scalars that depend on the seed alone."""

    def scalars(self, state: Coefficients, seed: int, step: int) -> tuple[int, ...]:
        """One scalar."""
        return (random.Random(seed).randint(50, 150),)


def play(steps: int) -> SimulatedRun:
    estimators = dict.fromkeys(FORMATS, cast(StateEstimator, FakeEstimator()))
    return SimulatedRun(small_manifest(steps=steps), OWNER, estimators, 1)


def test_simulated_run__all_roles__their_records_are_valid_and_say_what_they_should() -> None:
    manifest = small_manifest(steps=STEPS)
    run = play(STEPS)
    replica = Replica(manifest)
    for record in run.records:
        replica.add(record)
    assert replica.ledger.void_slots > 0
    drawn = []
    claims = {HONEST: 1, EQUIVOCATOR: 1, "zeros": 0, "flipped": -1, "scaled": 2}
    for envelope in replica.ledger.slots.envelopes():
        role = run.roles[envelope.author]
        (true,) = FakeEstimator().scalars(replica.coefficients(), envelope.seed, envelope.step)
        assert envelope.seed == seed_of(manifest.run_id, envelope.author, envelope.step)
        if role in claims:
            assert envelope.scalars == (claims[role] * true,)
        elif role == "random":
            drawn.append(envelope.scalars == (true,))
    assert sum(drawn) < len(drawn) / 4  # one of them may be right by chance
    seen = {run.roles[author] for author in replica.ledger.authors()}
    assert seen == {HONEST, EQUIVOCATOR, EXPELLED, *CHEATS}
    before = replica.ledger.updates
    replica.add_statement(run.statement)
    assert replica.ledger.updates < before  # what was in force for a while is taken out


class FakeDenseEstimator:
    """Rows and numbers that depend on the seed alone."""

    def scalars(self, state: Coefficients, seed: int, step: int) -> tuple[int, ...]:
        """A number of rows, and 16 numbers."""
        return (4, *random.Random(seed).choices((-2, -1, 1, 2), k=16))


def test_simulated_run__dense_messages__copies_and_second_ones_have_all_numbers() -> None:
    """They had the number of rows alone, and the benchmark ended with a traceback."""
    manifest = small_manifest(core="dense", steps=STEPS)
    estimators = dict.fromkeys(FORMATS, cast(StateEstimator, FakeDenseEstimator()))
    run, replica = SimulatedRun(manifest, OWNER, estimators, 1), Replica(manifest)
    for record in run.records:
        replica.add(record)
    assert replica.ledger.void_slots > 0
    seen = {run.roles[envelope.author] for envelope in replica.ledger.slots.envelopes()}
    assert seen == {HONEST, EQUIVOCATOR, EXPELLED, *CHEATS}


def test_simulated_run__same_number__same_records() -> None:
    assert play(STEPS // 5).records == play(STEPS // 5).records


def test_summary__two_runs__counts_and_first_findings() -> None:
    rows = [
        {"run": 0, "honest": {"AGREES": 8, "UNJUDGED": 2}, "cheats": {"zeros": ["UNJUDGED", "MISMATCH"]}},
        {"run": 1, "honest": {"AGREES": 9, "MISMATCH": 1}, "cheats": {"zeros": ["UNJUDGED"], "random": ["MISMATCH"]}},
    ]
    found = summary(rows)
    assert (found["honest_messages"], found["accused"], found["not_judged"]) == (20, 1, 2)
    assert found["cheats"]["zeros"] == {
        "cheats": 2,
        "not_found": 1,
        "found_after_median": 2,
        "found_after_max": 2,
    }
    assert found["cheats"]["random"]["found_after_max"] == 1
