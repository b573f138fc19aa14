"""``sfnode audit``: measure messages of other authors again and compare."""

import random
from collections import Counter
from pathlib import Path

import click
import trio

from protocol.crypto import Author, Signer
from protocol.documents import audit_report
from protocol.errors import OperatorError, Reject
from protocol.ledger import Envelope
from protocol.run import Manifest, SignedManifest
from protocol.schema import is_hex
from sfnode.cli import options
from sfnode.cli.exit_codes import ExitCode
from sfnode.cli.option_values import FilePath, FolderPath
from sfnode.cli.remembered_options import model_of
from sfnode.extras import check_can_train
from sfnode.storage import DataDirectory, disk, example_files
from sfnode.worker import AuditCase, PastStates, audit_case, audit_measuring
from sfnode.worker_protocol import DeviceOptions, TrainingConfig

# Measured by `python -m benchmarks.audit_honesty`; the bound holds with 95 % confidence.
FALSE_ALARMS = "none of 10,712 honest messages in simulated runs, so at most 0.03 % (docs/threat-model.md)"
# 0 of 106 with the demo's model; on views that lack a tenth of all earlier messages, 4 of 20 with a real one.
DENSE_FALSE_ALARMS = (
    "none of 106 honest messages in simulated runs, so at most 3 %; more of authors who had long lacked many messages "
    "(docs/threat-model.md)"
)


@click.command()
@options.node_option
@options.local_model_option
@click.option(
    "--data", help="Read the run's public data from this JSONL file.  [default: the data of an embedded task]"
)
@click.option(
    "--author", help="Measure only messages of this author, a key of 64 hex digits.  [default: those of everybody]"
)
@options.number_option("--messages", 8, "Measure this many messages, chosen at random.", most=10**6)
@click.option("--check", type=FilePath, help="Repeat what this audit report says, instead of choosing messages.")
@click.option("--out", type=FolderPath, help="Write a signed report of each mismatch into this folder.")
@options.device_options
@options.json_option
def audit(
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    data: str | None,
    author: str | None,
    messages: int,
    check: Path | None,
    out: Path | None,
    devices: DeviceOptions,
) -> None:
    """Measure messages of a public run again. The exit code is 1 if one is not what its author claims.

    \b
    Example: sfnode audit my-run --data train.jsonl --messages 20
             sfnode audit my-run --data train.jsonl --check 0123456789abcdef-17.audit
    """
    check_can_train()
    if author is not None and not is_hex(author, 64):
        what = "give the author's key as 64 lower-case hex digits (`sfnode log show`)"
        raise OperatorError(f"--author {author!r}: {what}")
    key = None if author is None else Author(bytes.fromhex(author))
    signed = data_dir.signed_manifest()
    audit_case.check_auditable(signed.manifest)
    with data_dir.reading() as stored:
        replica = stored.replica(signed.manifest)
        config = TrainingConfig(
            model=model_of(signed.manifest, data_dir, model, revision),
            data=example_files.training_file(signed.manifest.task, data),
            devices=devices,
            basis=data_dir.basis.find(signed.manifest),
        )
        if check is None:
            chosen = audit_measuring.choose_messages(replica.ledger, key, messages, random.SystemRandom())
        else:
            chosen = [_reported(signed, check)]
        past = PastStates(signed.manifest, replica.ledger, stored)
        cases = trio.run(audit_measuring.audit_messages, signed, config, past, chosen)
    mismatches = [case for case in cases if case.verdict is audit_case.AuditVerdict.MISMATCH]
    if out is not None:
        _write_reports(mismatches, signed, data_dir.identity.signer(), out)
    _say(signed.manifest, cases, reports=0 if out is None else len(mismatches))
    if mismatches:
        raise SystemExit(ExitCode.FAILED)


def _reported(signed: SignedManifest, path: Path) -> Envelope:
    try:
        return audit_report.decode_report_untrusted(signed.manifest, disk.read_bytes(path, "the audit report"))[1]
    except Reject as reject:
        raise OperatorError(
            f"{path} is not a valid audit report of this run: {reject.detail}. Ask for it again"
        ) from None


def _write_reports(mismatches: list[AuditCase], signed: SignedManifest, signer: Signer, out: Path) -> None:
    for case in mismatches:
        measured = case.nearest or ()
        _, data = audit_report.make_report(signed.manifest, signer, case.envelope, measured, case.tolerance)
        path = out / f"{case.envelope.author.hex()[:16]}-{case.envelope.step}.audit"
        try:
            audit_report.decode_report_untrusted(signed.manifest, disk.read_bytes(path, "the audit report"))
        except (OperatorError, Reject):
            disk.write_new(path, [data])
        else:
            disk.write_durably(path, data)  # replaces the report of an earlier audit


def _say(manifest: Manifest, cases: list[AuditCase], *, reports: int) -> None:
    false_alarms = DENSE_FALSE_ALARMS if manifest.method.is_dense else FALSE_ALARMS
    lines = [f"{'author':<16}  {'step':>6}  {'deviation':>9}  {'tolerance':>9}"]
    for case in cases:
        author, why = case.envelope.author.hex()[:16], f": {case.reason}" if case.reason else ""
        figures = f"{case.deviation:>9.3f}  {case.tolerance:>9.3f}"
        lines.append(f"{author}  {case.envelope.step:>6}  {figures}  {case.verdict}{why}")
    counts = Counter(case.verdict for case in cases)
    known = audit_case.AuditVerdict
    verdicts = f"{counts[known.MISMATCH]} mismatches, {counts[known.UNJUDGED]} cannot be judged"
    lines += [f"{len(cases)} messages measured again, {verdicts}", f"False alarms: {false_alarms}"]
    fields = {"messages": [_row(case) for case in cases], "reports": reports, "false_alarms": false_alarms}
    options.print_result(fields, "\n".join(lines))


def _row(case: AuditCase) -> dict[str, object]:
    return {
        "author": case.envelope.author.hex(),
        "step": case.envelope.step,
        "claimed": case.claimed,
        "measured": case.nearest or (),
        "deviation": None if case.nearest is None else case.deviation,
        "tolerance": case.tolerance,
        "verdict": case.verdict.name.lower(),
        "reason": case.reason,
    }
