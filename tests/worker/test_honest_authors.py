"""What an audit once called a cheat and is none: each cause is a story with an honest author in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import trio

from protocol.crypto.hashing import seed_of
from protocol.crypto.keys import Signer
from protocol.documents.audit_report import deviation
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import sign_manifest
from protocol.state.coefficients import Coefficients
from protocol.subspace.basis_file import Bases
from sfnode.demo import data_file, model_folder
from sfnode.run.manifest_builder import MethodOptions
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import load_shared
from sfnode.worker.audit_case import AuditCase, AuditVerdict
from sfnode.worker.audit_measuring import audit_messages, choose_messages
from sfnode.worker.past_states import PastStates
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.support.demo_run import AUTHORS, DemoRun, demo_run
from tests.support.worker_process import WorkerProcess

STEPS, ROWS = 24, 256
OWNER, HONEST, OTHER, TROUBLE = AUTHORS
_CLIP = 1_024


@dataclass(slots=True)
class Story:
    """A run that somebody audits: what came to their node, in this order."""

    run: DemoRun
    data: Path
    worker: Path
    arrived: list[Envelope] = field(default_factory=list)

    def measured(
        self, author: Signer, step: int, held: Iterable[Envelope], session: Estimator | None = None
    ) -> tuple[int, ...]:
        """What ``author`` gets for ``step`` with these updates."""
        state, estimator = Coefficients(self.run.manifest), session or self.run.session
        state.add(held)
        estimator.set_coefficients(0, state.flat(0))
        return estimator.estimate(seed_of(self.run.manifest.run_id, author.author, step), step).scalars

    def sealed(self, author: Signer, step: int, scalars: tuple[int, ...]) -> Envelope:
        """Their message."""
        return EnvelopeCodec(self.run.manifest).seal(author, step, scalars)

    def say(self, author: Signer, step: int, held: Iterable[Envelope], factor: int = 1) -> Envelope:
        """``author`` measures with these updates, and sends ``factor`` times what came out."""
        scalars = (max(-_CLIP, min(_CLIP, factor * each)) for each in self.measured(author, step, held))
        self.arrived.append(self.sealed(author, step, tuple(scalars)))
        return self.arrived[-1]

    def audited(self, folder: Path, author: Signer, statements: Sequence[bytes] = ()) -> list[AuditCase]:
        """The audit of all messages of ``author`` on a node that all this came to."""
        signed = sign_manifest(self.run.manifest, OWNER)
        with contextlib.closing(Store(DataDirectory(folder), signed)) as store:
            store.add([each.record for each in self.arrived], is_durable=True)
            store.add_statements(statements)
        config = TrainingConfig(model="embedded:tiny-opt", data=self.data, worker_socket=self.worker)
        with DataDirectory(folder).reading() as stored:
            replica = stored.replica(signed.manifest)
            past = PastStates(signed.manifest, replica.ledger, stored)
            chosen = choose_messages(replica.ledger, author.author, 99, random.Random(1))
            return trio.run(audit_messages, signed, config, past, chosen)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with WorkerProcess(tmp_path_factory.mktemp("worker")) as process:
        yield process.path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few rows: an audit reads them once for each number format."""
    rows = data_file(split="train").read_text("utf-8").splitlines(keepends=True)[:ROWS]
    (path := tmp_path_factory.mktemp("data") / "some.jsonl").write_text("".join(rows), "utf-8")
    return path


@pytest.fixture
def story(data: Path, worker: Path) -> Story:
    return Story(demo_run(MethodOptions(directions=8, learning_rate=3e-3), STEPS, data=data), data, worker)


def with_a_troublemaker(story: Story, steps: int) -> None:
    """Each round is measured on all before it; one author drives the model far away."""
    for step in range(steps):
        held = list(story.arrived)
        story.say(TROUBLE, step, held, factor=-8)
        for author in (HONEST, OTHER):
            story.say(author, step, held)


def expulsion(story: Story, from_step: int) -> bytes:
    return StatementCodec(story.run.manifest).exclude(OWNER, TROUBLE.author, from_step)


def furthest_off(story: Story, author: Signer, held: Iterable[Envelope]) -> float:
    """Deviation of the author's last message from what these updates give."""
    last = [each for each in story.arrived if each.author == author.author][-1]
    return deviation(last.scalars, story.measured(author, last.step, held))


def test_audit__updates_of_an_author_who_was_expelled_later__were_in_what_the_honest_one_saw(
    story: Story, tmp_path: Path
) -> None:
    with_a_troublemaker(story, 8)
    today = [each for each in story.arrived if each.author != TROUBLE.author and each.step < 7]
    assert furthest_off(story, HONEST, today) > 0.1
    rows = story.audited(tmp_path, HONEST, [expulsion(story, 0)])
    assert [(row.verdict, row.deviation) for row in rows] == [(AuditVerdict.AGREES, 0.0)] * 8


def test_audit__expelled_author_whose_updates_never_came_here__cannot_be_judged(story: Story, tmp_path: Path) -> None:
    with_a_troublemaker(story, 3)
    story.arrived = [each for each in story.arrived if each.author != TROUBLE.author]
    verdicts = {row.verdict for row in story.audited(tmp_path, HONEST, [expulsion(story, 0)])}
    assert AuditVerdict.UNJUDGED in verdicts
    assert AuditVerdict.MISMATCH not in verdicts


def test_audit__author_who_is_slow__held_the_others_later_rounds(story: Story, tmp_path: Path) -> None:
    for step in range(8):
        for author in (OTHER, TROUBLE):
            story.say(author, step, list(story.arrived), factor=8)
        if step == 6:
            story.say(HONEST, 4, list(story.arrived))
    assert furthest_off(story, HONEST, [each for each in story.arrived if each.step < 4]) > 0.1
    (row,) = story.audited(tmp_path, HONEST)
    assert (row.verdict, row.deviation) == (AuditVerdict.AGREES, 0.0)


def test_audit__author_who_was_cut_off_for_a_while__measured_without_the_others(story: Story, tmp_path: Path) -> None:
    for step in range(8):
        for author in (OTHER, TROUBLE):
            story.say(author, step, list(story.arrived), factor=8)
    story.say(HONEST, 8, [])
    assert furthest_off(story, HONEST, story.arrived[:-1]) > 0.1
    (row,) = story.audited(tmp_path, HONEST)
    assert (row.verdict, row.deviation) == (AuditVerdict.AGREES, 0.0)


def test_audit__author_who_started_in_the_middle_of_a_round__held_a_part_of_it(story: Story, tmp_path: Path) -> None:
    """Of 10,046 honest messages three were accused: their authors held parts of rounds, and whole ones were tried."""
    for step in range(4):
        for author in (OTHER, TROUBLE):
            held = list(story.arrived)
            story.say(author, step, held, factor=8)
            if (author, step) == (OTHER, 2):
                scalars = story.measured(HONEST, 0, story.arrived)
    for step in range(4):
        assert deviation(scalars, story.measured(HONEST, 0, [e for e in story.arrived if e.step < step])) > 0.1
    story.arrived.append(story.sealed(HONEST, 0, scalars))
    (row,) = story.audited(tmp_path, HONEST)
    assert (row.verdict, row.deviation) == (AuditVerdict.AGREES, 0.0)


def test_audit__author_cut_off_before_an_expulsion__went_on_with_the_updates_of_the_expelled(
    story: Story, tmp_path: Path
) -> None:
    with_a_troublemaker(story, 7)
    held = [each for each in story.arrived if each.step < 6 or each.author == HONEST.author]
    for step in (7, 8):
        story.say(OTHER, step, [each for each in story.arrived if each.author != TROUBLE.author])
    story.say(HONEST, 9, held)
    assert furthest_off(story, HONEST, [each for each in held if each.author != TROUBLE.author]) > 0.1
    last = story.audited(tmp_path, HONEST, [expulsion(story, 0)])[-1]
    assert (last.verdict, last.deviation) == (AuditVerdict.AGREES, 0.0)


def test_audit__slot_that_became_void_later__was_in_what_the_honest_one_saw(story: Story, tmp_path: Path) -> None:
    with_a_troublemaker(story, 6)
    voided = [story.sealed(TROUBLE, step, (1,) * 8) for step in range(5)]
    story.arrived += voided
    today = [each for each in story.arrived if each.author != TROUBLE.author and each.step < 5]
    assert furthest_off(story, HONEST, today) > 0.1
    assert [row.deviation for row in story.audited(tmp_path, HONEST)] == [0.0] * 6


# bf16 is what most nodes take, int4 the farthest from fp32: `make test-all` tries those between as well.
@pytest.mark.parametrize(
    "dtype", ["bf16", "int4", *(pytest.param(each, marks=pytest.mark.slow) for each in ("fp16", "int8"))]
)
def test_audit__author_in_another_number_format__agrees(story: Story, tmp_path: Path, dtype: str) -> None:
    shared = load_shared(dtype, model_folder(), torch.device("cpu"))
    session = Estimator(shared, Bases(story.run.manifest), story.run.session.data)
    off = []
    for step in range(6):
        held = list(story.arrived)
        scalars = story.measured(HONEST, step, held, session)
        off.append(deviation(scalars, story.measured(HONEST, step, held)))
        story.arrived.append(story.sealed(HONEST, step, scalars))
        story.say(OTHER, step, held)
    assert dtype == "fp16" or max(off) > 0.25
    assert [row.verdict for row in story.audited(tmp_path, HONEST)] == [AuditVerdict.AGREES] * 6


def test_audit__nobody_else_comes_out_either__the_fault_may_be_here(story: Story, tmp_path: Path) -> None:
    for step in range(2):
        for author in (HONEST, OTHER, TROUBLE):
            story.say(author, step, list(story.arrived), factor=-1)
    rows = story.audited(tmp_path, HONEST)
    assert [row.verdict for row in rows] == [AuditVerdict.UNJUDGED] * 2
    assert "of 2 other messages of that round only 0 came out" in rows[0].reason


def test_audit__liars_around_an_author_withheld_what_one_of_them_sent__it_is_not_accused_and_its_own_node_clears_it(
    story: Story, tmp_path: Path
) -> None:
    """No state that others try is the one it had: which updates were withheld is the liars' choice.

    What came to its own node, and in which order, is on its own disk.
    """
    for step in range(8):
        held = list(story.arrived)
        # So far away that measurements differ too much everywhere: agreement within the tolerance would prove nothing.
        story.say(TROUBLE, step, held, factor=16 if step < 5 else 1)
        story.say(OTHER, step, held)
    everybody = list(story.arrived)
    seen = [each for each in everybody if each.author != TROUBLE.author]
    message = story.say(HONEST, 8, seen)
    for author in (TROUBLE, OTHER):
        story.say(author, 8, everybody)
    (elsewhere,) = story.audited(tmp_path / "elsewhere", HONEST)
    assert elsewhere.verdict is not AuditVerdict.MISMATCH and elsewhere.deviation > 0.1
    story.arrived = list(dict.fromkeys([*seen, message, *story.arrived]))
    (own,) = story.audited(tmp_path / "own", HONEST)
    assert (own.verdict, own.deviation) == (AuditVerdict.AGREES, 0.0)
