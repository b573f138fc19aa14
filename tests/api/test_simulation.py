"""Simulated runs: real cores in virtual time. What they measure is made up, and follows from what they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import NumericError, OperatorError
from protocol.events import EstimateFinished
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import Manifest, sign_manifest
from protocol.state.coefficients import Coefficients
from protocol.state.replica import Replica
from sfnode.api.runs import LocalRun, open_run, save_run
from sfnode.api.simulation import Simulation, VirtualWorld, simulate
from sfnode.storage.data_directory import DataDirectory
from sfnode.worker_protocol.messages import Estimated, Evaluated
from tests.simulation.worker import measured
from tests.support.ledgers import seal, signer
from tests.support.manifests import OWNER, small_manifest

METHODS: dict[str, dict[str, object]] = {
    "canonical": {"directions": 4},
    "rounds": {"local_steps": 2},
    "dense": {"core": "dense"},
}


class MadeUpLearner:
    """Measures what follows from the seed and from the state that it was shown last; each ``skipped`` step fails."""

    def __init__(self, manifest: Manifest, skipped: frozenset[int] = frozenset()) -> None:
        self._manifest, self._skipped = manifest, skipped
        self._digest = bytes(32)
        self.states: set[bytes] = set()

    def show(self, coefficients: Coefficients) -> None:
        self._digest = coefficients.digest()
        self.states.add(self._digest)

    def estimate(self, seed: int, step: int, directions: int | None = None) -> Estimated:
        if step in self._skipped:
            raise NumericError("the loss is not finite")
        key = seed ^ int.from_bytes(self._digest[:8], "big")
        found = measured(self._manifest, step, key, directions or self._manifest.method.directions)
        assert isinstance(found, EstimateFinished)
        return Estimated(scalars=found.scalars, loss=0.5, rows=1)

    def evaluate(self, rows_max: int = 0) -> Evaluated:
        return Evaluated(accuracy=0.5, f1=0.5, loss=0.5, rows=rows_max, predictions=())


def run_of(**changes: object) -> LocalRun:
    wanted: dict[str, Any] = {"steps": 12, **changes}
    return LocalRun(signed=sign_manifest(small_manifest(**wanted), OWNER))


def simulated(run: LocalRun, nodes: int = 6, seed: int = 0) -> tuple[Simulation, MadeUpLearner]:
    learner = MadeUpLearner(run.manifest)
    return simulate(run, lambda _: learner, nodes, world=VirtualWorld(seed=seed)), learner


@pytest.mark.parametrize("method", METHODS)
def test_simulation__replayed_from_its_records__has_the_bits_of_the_live_nodes(method: str) -> None:
    found, learner = simulated(run_of(**METHODS[method]))

    replay = found.replay()
    assert replay.state_digest() == found.state_digest == replay.replayed_digest()
    assert replay.ledger.updates == found.replica.ledger.updates > 6 * 12 // 2 * 0.7
    assert len(learner.states) > 6  # nodes measured on what they held, step after step


def test_saved_run__step_that_is_none__is_refused(tmp_path: Path) -> None:
    run = run_of()
    saved = save_run(run, simulated(run)[0].replica, tmp_path / "saved")
    assert saved.state(0).steps == 0
    for step, said in ((-1, "step -1: the first step is 0"), (99, "has updates of 12 steps, and not yet of 99$")):
        for ask in (saved.state, lambda at_step: list(saved.updates(at_step))):
            with pytest.raises(OperatorError, match=said):
                ask(step)
    wrong: Any
    for wrong in (2.5, True, "2"):
        for ask in (saved.state, lambda at_step: list(saved.updates(at_step))):
            with pytest.raises(OperatorError, match=f"step {wrong!r}: give a whole number, or 'best'"):
                ask(wrong)


def test_saved_run__replica_of_another_run__leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="the replica is of run "):
        save_run(run_of(), Replica(small_manifest(steps=13)), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_simulation__same_seed_again__is_the_same_to_the_bit() -> None:
    first, again, other = (simulated(run_of(), seed=seed)[0].state_digest for seed in (1, 1, 2))
    assert first == again != other


def test_simulation__many_nodes_of_four_links__agree_and_measure_every_step() -> None:
    found, _ = simulated(run_of(steps=2), nodes=60)
    assert found.replica.ledger.updates == 120 and found.skipped == 0
    assert len(found.replica.ledger.authors()) == 60


def test_simulation__one_node__needs_no_neighbour() -> None:
    found, _ = simulated(run_of(), nodes=1)
    assert found.replica.ledger.updates == 12


def test_simulation__loss_that_is_not_finite__skips_the_step_on_that_node_alone() -> None:
    run = run_of()
    steps: list[int] = []
    learners = [MadeUpLearner(run.manifest, frozenset(skipped)) for skipped in ((), range(12), ())]
    found = simulate(run, learners.__getitem__, 3, on_step=steps.append)
    assert found.skipped == 12 and found.replica.ledger.updates == 24
    assert steps == list(range(12))


REFUSED: tuple[tuple[Callable[[], LocalRun], int, str], ...] = (
    (run_of, 0, "give 1 to 1,024"),
    (run_of, 1_025, "give 1 to 1,024"),
    (lambda: run_of(admission="invite"), 4, "only an open run"),
    (lambda: run_of(pow_bits=8), 4, "only an open run"),
)


@pytest.mark.parametrize(("make", "nodes", "text"), REFUSED)
def test_simulation__run_or_number_that_cannot_be__is_refused_in_words(
    make: Callable[[], LocalRun], nodes: int, text: str
) -> None:
    with pytest.raises(OperatorError, match=text):
        simulated(make(), nodes)


def test_saved_run__opened_again__has_the_updates_and_the_state_at_each_step(tmp_path: Path) -> None:
    found, _ = simulated(run_of())
    saved = save_run(found.run, found.replica, tmp_path / "node")

    assert open_run(tmp_path / "node").manifest == found.run.manifest
    records = [envelope.record for envelope in found.replica.ledger.slots.envelopes()]
    assert [envelope.record for envelope in saved.updates()] == records
    assert saved.state().coefficients.digest() == found.state_digest
    half = saved.state(at_step=6).coefficients
    assert half.digest() == found.replica.coefficients_at(6).digest() != found.state_digest


def test_saved_run__rounds_of_two_steps__is_there_up_to_its_last_step(tmp_path: Path) -> None:
    """A round is named by its first step: the second of the last one was not yet there."""
    found, _ = simulated(run_of(**METHODS["rounds"]))
    saved = save_run(found.run, found.replica, tmp_path / "node")
    assert [saved.state(at_step=step).steps for step in (11, 12, None)] == [11, 12, 12]
    assert saved.state(at_step=12).coefficients.digest() == found.state_digest


def test_saved_run__admitted_author_who_signed_twice__replays_to_the_same_ledger_however_often_saved(
    tmp_path: Path,
) -> None:
    run = run_of(admission="allow-list")
    replica = Replica(run.manifest)
    replica.add_statement(StatementCodec(run.manifest).admit(OWNER, signer(1).author))
    for record in (*(seal(run.manifest, 1, step) for step in range(5)), seal(run.manifest, 1, 4, 99)):
        replica.add(record)
    for _ in range(3):
        save_run(run, replica, tmp_path)
    with DataDirectory(tmp_path).reading() as stored:
        again = stored.replica(run.manifest)
        assert len(list(stored.records())) == 6 and len(stored.statements()) == 1
        assert (again.ledger.updates, again.ledger.void_slots) == (4, 1)
        assert (again.ledger.root(), again.state_digest()) == (replica.ledger.root(), replica.state_digest())


def test_save_run__folder_with_another_simulation_of_the_run__is_refused_and_nothing_changes(tmp_path: Path) -> None:
    """Every slot of both was void, and the state was empty."""
    run = run_of()
    first, second = (simulated(run, nodes)[0] for nodes in (6, 3))
    saved = save_run(run, first.replica, tmp_path)
    with pytest.raises(OperatorError, match=r"would count no more\. Save into another folder"):
        save_run(run, second.replica, tmp_path)
    assert saved.state().coefficients.digest() == first.state_digest


def test_save_run__author_has_signed_twice_since__saves_the_proof(tmp_path: Path) -> None:
    run, replica = run_of(), Replica(run_of().manifest)
    replica.add(seal(run.manifest, 1, 4))
    save_run(run, replica, tmp_path)
    replica.add(seal(run.manifest, 1, 4, 99))
    assert list(save_run(run, replica, tmp_path).updates()) == []


def test_run_file__opened__has_no_records_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "my.run"
    file.write_bytes(run_of().signed.encode())
    opened = open_run(str(file))
    assert opened.manifest == run_of().manifest
    with pytest.raises(OperatorError, match="open the directory of a node of it"):
        opened.state()


def test_run_of_a_dense_core__without_its_basis__names_what_is_missing() -> None:
    with pytest.raises(OperatorError, match="the run has a published basis, and it is not here"):
        run_of(core="dense").bases()
