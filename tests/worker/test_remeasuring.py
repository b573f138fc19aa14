"""Audits: honest messages of a real training agree when they are measured again, invented ones do not; reports."""

from __future__ import annotations

import contextlib
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.crypto.hashing import seed_of
from protocol.crypto.keys import Signer
from protocol.documents.audit_report import AuditReport, decode_report_untrusted, deviation, make_report
from protocol.errors import Reject, RejectReason
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.run.manifest import SignedManifest, sign_manifest
from sfnode.run.manifest_builder import MethodOptions
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData
from sfnode.worker.audit_measuring import choose_messages
from tests.support.cli_calls import assert_teaches, call
from tests.support.demo_run import AUTHORS, demo_run
from tests.support.found_bases import dense_bases
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import small_manifest
from tests.support.tiny_models import tiny_llama

STEPS = 6
SLOW, CHEAT = AUTHORS[2:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A data directory whose ledger holds a short training.

    ``SLOW`` measures one direction in the first step and one more in each; the last author's step 5 is invented.
    """

    directory: Path
    signed: SignedManifest


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    run = demo_run(MethodOptions(directions=8), STEPS)
    signed = sign_manifest(run.manifest, AUTHORS[0])
    codec = EnvelopeCodec(run.manifest)
    records = []
    for step in range(STEPS):
        made = []
        for author in AUTHORS:
            directions = step + 1 if author is SLOW else None
            scalars = run.session.estimate(seed_of(run.manifest.run_id, author.author, step), step, directions).scalars
            if author is CHEAT and step == STEPS - 1:
                scalars = tuple(-each for each in scalars)
            made.append(codec.seal(author, step, scalars))
        run.coefficients.add(made)
        run.session.set_coefficients(0, run.coefficients.flat(0))
        records += [envelope.record for envelope in made]
    directory = tmp_path_factory.mktemp("audited")
    with contextlib.closing(Store(DataDirectory(directory), signed)) as store:
        store.add(records, is_durable=True)
    KeyFile(directory / IDENTITY_FILE).store(bytes(32))
    return Trained(directory=directory, signed=signed)


@pytest.mark.parametrize(("author", "messages"), [(AUTHORS[1], 3), (SLOW, STEPS)], ids=["all", "some directions"])
def test_audit__honest_author__agrees(author: Signer, messages: int, trained: Trained) -> None:
    honest = author.author.hex()
    outcome = call("audit", "--data-dir", trained.directory, "--author", honest, "--messages", messages, "--json")
    assert outcome.code == 0, outcome
    found = json.loads(outcome.stdout)
    assert [row["verdict"] for row in found["messages"]] == ["agrees"] * messages
    assert max(row["deviation"] for row in found["messages"]) == 0.0  # same machine, same state: the same integers


def test_audit__invented_message__is_reported_and_the_report_gives_the_same_verdict(
    trained: Trained, tmp_path: Path
) -> None:
    cheat, directory = CHEAT.author.hex(), ("audit", "--data-dir", trained.directory)
    outcome = call(*directory, "--author", cheat, "--messages", 99, "--out", tmp_path, "--json")
    assert outcome.code == 1
    *honest, row = json.loads(outcome.stdout)["messages"]
    assert [each["verdict"] for each in honest] == ["agrees"] * (STEPS - 1)
    assert row["verdict"] == "mismatch"
    (file,) = tmp_path.iterdir()
    assert file.name == f"{cheat[:16]}-5.audit"
    report, envelope = decode_report_untrusted(trained.signed.manifest, file.read_bytes())
    assert (envelope.author, envelope.step) == (CHEAT.author, STEPS - 1)
    assert deviation(envelope.scalars, report.measured) > row["tolerance"]
    assert report.tolerance_mille == math.floor(1_000 * row["tolerance"])
    again = call(*directory, "--check", file, "--json")
    assert again.code == 1
    assert json.loads(again.stdout)["messages"] == [row]


def test_audit__report_of_a_liar_about_an_honest_message__says_nothing_that_is_not_measured_again(
    trained: Trained, tmp_path: Path
) -> None:
    honest, manifest = AUTHORS[1], trained.signed.manifest
    with DataDirectory(trained.directory).replayed(manifest) as replica:
        (envelope,) = replica.ledger.slots.first_of(honest.author, range(3, 4))
    measured = tuple(-each for each in envelope.scalars)
    report, data = make_report(manifest, CHEAT, envelope, measured, 0.0)
    assert deviation(envelope.scalars, report.measured) == 2
    (tmp_path / "lie.audit").write_bytes(data)
    outcome = call("audit", "--data-dir", trained.directory, "--check", tmp_path / "lie.audit", "--json")
    assert outcome.code == 0, outcome
    (row,) = json.loads(outcome.stdout)["messages"]
    assert (row["author"], row["verdict"], row["deviation"]) == (honest.author.hex(), "agrees", 0.0)


def test_audit__told_to_people__verdicts_and_how_often_they_are_false(trained: Trained) -> None:
    outcome = call("audit", "--data-dir", trained.directory, "--author", CHEAT.author.hex(), "--messages", 99)
    assert outcome.stdout.count("  agrees\n") == STEPS - 1
    assert outcome.stdout.count("  NOT WHAT WAS CLAIMED\n") == 1
    assert "6 messages measured again, 1 mismatches, 0 cannot be judged" in outcome.stdout
    assert "False alarms: " in outcome.stdout


def test_audit__nonsense_asked_for__says_what_to_do(trained: Trained, tmp_path: Path) -> None:
    directory = ("audit", "--data-dir", trained.directory)
    assert_teaches(call(*directory, "--author", "me"), "--author 'me'", "64 lower-case hex digits")
    assert_teaches(call(*directory, "--author", "00" * 32), "no update of author 0000", "nothing to audit")
    (tmp_path / "x.audit").write_text("no report")
    assert_teaches(call(*directory, "--check", tmp_path / "x.audit"), "x.audit", "not a valid audit report")


def test_choose_messages__at_random__of_the_author_by_step() -> None:
    manifest = small_manifest()
    ledger = ledger_of(manifest, [seal(manifest, author, step, 5) for author in range(3) for step in range(4)])
    chosen = choose_messages(ledger, signer(1).author, 3, random.Random(1))
    assert {envelope.author for envelope in chosen} == {signer(1).author}
    assert [envelope.step for envelope in chosen] == sorted({envelope.step for envelope in chosen})
    assert len(choose_messages(ledger, None, 99, random.Random(1))) == 12


@pytest.mark.parametrize(
    ("claimed", "measured", "expected"),
    [
        ((3, 4), (3, 4), 0.0),
        ((0, 0), (3, 4), 1.0),
        ((-3, -4), (3, 4), 2.0),
        ((1, 0), (0, 0), 0.5**0.5),  # no measurement is shorter than a quantum per scalar
    ],
)
def test_deviation__claims__relative_to_the_measurement(
    claimed: tuple[int, ...], measured: tuple[int, ...], expected: float
) -> None:
    assert deviation(claimed, measured) == pytest.approx(expected)


def reported() -> tuple[AuditReport, bytes]:
    manifest = small_manifest(directions=2)
    return make_report(manifest, signer(9), message(), (100, 50), 0.3)


def message() -> Envelope:
    manifest = small_manifest(directions=2)
    return EnvelopeCodec(manifest).seal(signer(1), 4, (-100, 50))


def test_report__signed_and_read_back__is_equal() -> None:
    report, data = reported()
    assert decode_report_untrusted(small_manifest(directions=2), data) == (report, message())
    assert report.tolerance_mille == 300
    assert deviation((-100, 50), report.measured) > 0.3 > deviation((100, 60), report.measured)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b'"tolerance_mille":300', b'"tolerance_mille":301', RejectReason.SIGNATURE),
        (b'"measured":[100,50]', b'"measured":[100, 50]', RejectReason.AUDIT_FORMAT),
        (b'"measured":[100,50]', b'"measured":[true,50]', RejectReason.AUDIT_FORMAT),
        (b"{", b"", RejectReason.AUDIT_FORMAT),
        (b"\n", b"\n\n", RejectReason.AUDIT_FORMAT),
    ],
)
def test_report__changed__is_rejected(before: bytes, after: bytes, reason: RejectReason) -> None:
    data = reported()[1].replace(before, after, 1)
    with pytest.raises(Reject) as caught:
        decode_report_untrusted(small_manifest(directions=2), data)
    assert caught.value.reason is reason


def test_report__of_another_run_or_a_false_sum__is_rejected() -> None:
    with pytest.raises(Reject) as caught:
        decode_report_untrusted(small_manifest(directions=2, rank=4), reported()[1])
    assert caught.value.reason is RejectReason.RUN_ID
    with pytest.raises(Reject) as caught:
        decode_report_untrusted(small_manifest(directions=2), bytes(1 << 17))
    assert caught.value.reason is RejectReason.SIZE


def test_report__of_fewer_measurements_than_the_message_has_scalars__is_rejected() -> None:
    manifest = small_manifest(directions=2)
    _, data = make_report(manifest, signer(9), message(), (100,), 0.3)
    with pytest.raises(Reject, match="another number of scalars") as caught:
        decode_report_untrusted(manifest, data)
    assert caught.value.reason is RejectReason.AUDIT_FORMAT


def test_report__of_a_dense_message__holds_its_numbers_without_the_rows() -> None:
    shared = SharedModel(tiny_llama())
    examples = tuple(Example(tokens=(3 + row % 9, 5, 7), label=row % 2) for row in range(32))
    data = TaskData(label_tokens=(3, 4), examples=examples)
    bases, _ = dense_bases(shared, data)
    session = Estimator(shared, bases, data)
    manifest, measured = bases.manifest, session.estimate(1, 0).scalars
    envelope = EnvelopeCodec(manifest).seal(signer(1), 0, (measured[0], *(-each for each in measured[1:])))
    _, encoded = make_report(manifest, signer(9), envelope, measured[1:], 0.3)
    report, found = decode_report_untrusted(manifest, encoded)
    assert deviation(found.measured, report.measured) == 2
    _, wrong = make_report(manifest, signer(9), envelope, measured, 0.3)
    with pytest.raises(Reject, match="another number of scalars"):
        decode_report_untrusted(manifest, wrong)


def test_report__every_byte_changed__only_reject_escapes() -> None:
    manifest, data = small_manifest(directions=2), reported()[1]
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(Reject):
            decode_report_untrusted(manifest, changed)
