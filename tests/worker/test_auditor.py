"""When an audit accuses, and when it does not: all that is measured is invented here, and the same on every state."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from protocol.errors import OperatorError
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.run.manifest import sign_manifest
from protocol.state.coefficients import Coefficients
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.worker.audit_case import AuditCase, AuditVerdict
from sfnode.worker.audit_measuring import Auditor
from sfnode.worker.held_out_measuring import Measuring
from sfnode.worker.past_states import PastStates
from tests.support.ledgers import signer
from tests.support.manifests import OWNER, small_manifest

MANIFEST = small_manifest()
STEP = 4


def truth(seed: int) -> int:
    """What the one scalar of a message really is: 300 to 500, or minus that."""
    chance = random.Random(seed)
    return chance.choice((-1, 1)) * chance.randint(300, 500)


@dataclass
class InventedMeasurements:
    """Formats differ by a quantum or two.

    ``only``: the digest of the one state and the one format in which the truth comes out; in the same state three
    quarters of it, elsewhere half.
    """

    missing: str = ""
    is_finite: bool = True
    only: tuple[bytes, str] | None = None
    dtype: str = "fp32"
    formats: tuple[str, ...] = ()

    async def open(self, dtype: str) -> None:
        if dtype == self.missing:
            raise OperatorError("torchao is missing")
        self.formats = (*self.formats, dtype)

    async def scalars(
        self, state: Coefficients, step: int, seeds: Sequence[int], directions: int, dtype: str
    ) -> list[tuple[int, ...] | None]:
        off = 0 if dtype == "fp32" else 2
        if self.only is not None:
            quarters = 2 if state.digest() != self.only[0] else 3 if dtype != self.only[1] else 4
            return [(truth(seed) * quarters // 4,) for seed in seeds]
        return [(truth(seed) + off,) if self.is_finite else None for seed in seeds]


def message(author: int, step: int = STEP, factor: float = 1) -> Envelope:
    codec = EnvelopeCodec(MANIFEST)
    seed = codec.seal(signer(author), step, (1,)).seed
    return codec.seal(signer(author), step, (round(factor * truth(seed)),))


async def judged(
    folder: Path, arrived: Sequence[Envelope], measurements: InventedMeasurements | None = None
) -> AuditCase:
    """The verdict on author 0's message, where these came in this order."""
    with contextlib.closing(Store(DataDirectory(folder), sign_manifest(MANIFEST, OWNER))) as store:
        store.add([each.record for each in arrived], is_durable=False)
    with DataDirectory(folder).reading() as stored:
        replica = stored.replica(MANIFEST)
        past = PastStates(MANIFEST, replica.ledger, stored)
        envelope = next(each for each in arrived if each.author == signer(0).author)
        case = AuditCase(envelope, envelope.scalars)
        await Auditor(cast(Measuring, measurements or InventedMeasurements()), past).examine([case])
        return case


async def test_auditor__claim_that_comes_out__agrees(tmp_path: Path) -> None:
    assert (await judged(tmp_path, [message(0)])).verdict is AuditVerdict.AGREES


@pytest.mark.parametrize("factor", [-1, 0, 2, 0.5, 1.2])
async def test_auditor__false_claim_and_two_witnesses__is_a_mismatch(tmp_path: Path, factor: float) -> None:
    found = await judged(tmp_path, [message(1), message(2), message(0, factor=factor)])
    assert (found.verdict, found.reason) == (AuditVerdict.MISMATCH, "")


async def test_auditor__false_claim_of_the_only_author__needs_no_witness(tmp_path: Path) -> None:
    assert (await judged(tmp_path, [message(0, factor=-1)])).verdict is AuditVerdict.MISMATCH


async def test_auditor__one_of_two_witnesses__is_too_few(tmp_path: Path) -> None:
    found = await judged(tmp_path, [message(1), message(2, factor=-1), message(0, factor=-1)])
    assert found.verdict is AuditVerdict.UNJUDGED
    assert found.reason == "of 2 other messages of that round only 1 came out"


@pytest.mark.parametrize("missing", ["bf16", "fp16", "int8", "int8-fp32", "int4"])
async def test_auditor__format_that_cannot_be_tried__accuses_nobody_and_says_why(tmp_path: Path, missing: str) -> None:
    arrived = [message(1), message(2), message(0, factor=-1)]
    found = await judged(tmp_path, arrived, InventedMeasurements(missing=missing))
    assert found.verdict is AuditVerdict.UNJUDGED
    assert found.reason == f"its author may compute in {missing}, which cannot be tried here: torchao is missing"


async def test_auditor__part_of_a_round_in_another_format__agrees(tmp_path: Path) -> None:
    """An honest author was accused: formats were tried with whole rounds, parts of rounds in this node's format."""
    arrived = [message(number, step) for step in range(STEP + 3) for number in (1, 2)]
    held = Coefficients(MANIFEST)
    held.add(arrived[: 2 * STEP + 1])
    found = await judged(tmp_path, [*arrived, message(0)], InventedMeasurements(only=(held.digest(), "int4")))
    assert (found.verdict, found.deviation, found.dtype) == (AuditVerdict.AGREES, 0.0, "int4")


async def test_auditor__false_claim_that_came_long_after_its_round__cannot_be_judged(tmp_path: Path) -> None:
    arrived = [message(number, step) for step in (STEP, STEP + 9) for number in (1, 2)]
    found = await judged(tmp_path, [*arrived, message(0, factor=-1)])
    assert found.verdict is AuditVerdict.UNJUDGED
    assert "may have been cut off" in found.reason


async def test_auditor__loss_not_finite_here__cannot_be_judged(tmp_path: Path) -> None:
    found = await judged(tmp_path, [message(0)], InventedMeasurements(is_finite=False))
    assert (found.verdict, found.reason, found.nearest) == (
        AuditVerdict.UNJUDGED,
        "the loss is not finite here",
        None,
    )
