"""``sfnode audit``: measure messages of other authors again and compare."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

import click
import trio

from protocol.crypto import Author, Signer
from protocol.documents import AuditReport, decode_report_untrusted, make_report
from protocol.errors import OperatorError, Reject
from protocol.ledger import Envelope
from protocol.run import SignedManifest
from protocol.schema import is_hex
from sfnode.cli.exits import ExitCode
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import data_dir_option, device_options, json_option, local_model_option, number_option
from sfnode.cli.value_types import FilePath, FolderPath
from sfnode.run import find_model
from sfnode.storage import DataDirectory, read_bytes, training_file, write_durably, write_new
from sfnode.worker import (
    Audit,
    AuditVerdict,
    PastStates,
    Remeasurement,
    audit_messages,
    check_auditable,
    choose_messages,
    report_name,
)
from sfnode.worker_protocol import DeviceOptions, TrainingConfig

# Measured by `python -m benchmarks.audit_honesty`; the bound holds with 95 % confidence.
FALSE_ALARMS: Final = "none of 840 honest messages in simulated runs, so at most 0.36 % (docs/threat-model.md)"


@click.command()
@data_dir_option
@local_model_option
@click.option(
    "--data", help="Read the run's public data from this JSONL file.  [default: the data of an embedded task]"
)
@click.option(
    "--author", help="Measure only messages of this author, a key of 64 hex digits.  [default: those of everybody]"
)
@number_option("--messages", 8, "Measure this many messages, chosen at random.", most=10**6)
@click.option("--check", type=FilePath, help="Repeat what this audit report says, instead of choosing messages.")
@click.option("--out", type=FolderPath, help="Write a signed report of each mismatch into this folder.")
@device_options
@json_option
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
    is_json: bool,
) -> None:
    """Measure messages of a public run again. The exit code is 1 if one is not what its author claims.

    \b
    Example: sfnode audit --data-dir ~/.sfnode/my-run --data train.jsonl --messages 20
             sfnode audit --data-dir ~/.sfnode/my-run --data train.jsonl --check 0123456789abcdef-17.audit
    """
    check_can_train()
    signed = data_dir.signed_manifest()
    check_auditable(signed.manifest)
    with data_dir.reading() as stored:
        replica = stored.replica(signed.manifest)
        config = TrainingConfig(
            model=find_model(signed.manifest, model, revision),
            data=training_file(signed.manifest.task, data),
            devices=devices,
            basis=data_dir.bases.first(signed.manifest),
            renewals=data_dir.bases.renewals_of(replica),
        )
        if check is None:
            chosen = choose_messages(replica.ledger, _author(author), messages, random.SystemRandom())
        else:
            chosen = [_reported(signed, check)]
        past = PastStates(signed.manifest, replica.ledger, stored)
        found = trio.run(audit_messages, signed, config, past, chosen)
    reports = _write_reports(found, signed, data_dir.identity.signer(), out) if out is not None else []
    _say(found, reports, is_json)
    if found.mismatches:
        raise SystemExit(ExitCode.FAILED)


def _author(text: str | None) -> Author | None:
    if text is None:
        return None
    if not is_hex(text, 64):
        raise OperatorError(f"--author {text!r}: give the author's key as 64 lower-case hex digits (`sfnode log show`)")
    return Author(bytes.fromhex(text))


def _reported(signed: SignedManifest, path: Path) -> Envelope:
    try:
        return decode_report_untrusted(signed.manifest, read_bytes(path, "the audit report"))[1]
    except Reject as reject:
        raise OperatorError(
            f"{path} is not a valid audit report of this run: {reject.detail}. Ask for it again"
        ) from None


def _write_reports(found: Audit, signed: SignedManifest, signer: Signer, out: Path) -> list[AuditReport]:
    reports = []
    for finding in found.mismatches:
        report, data = make_report(signed.manifest, signer, finding.envelope, finding.measured, finding.tolerance)
        path = out / report_name(finding.envelope)
        if _is_report(signed, path):
            write_durably(path, data)  # replaces the report of an earlier audit
        else:
            write_new(path, [data])
        reports.append(report)
    return reports


def _is_report(signed: SignedManifest, path: Path) -> bool:
    """Return whether the file at ``path`` is an audit report of this run."""
    try:
        decode_report_untrusted(signed.manifest, read_bytes(path, "the audit report"))
    except (OperatorError, Reject):
        return False
    return True


def _say(found: Audit, reports: list[AuditReport], is_json: bool) -> None:
    if is_json:
        rows = [_row(finding) for finding in found.findings]
        click.echo(json.dumps({"messages": rows, "reports": len(reports), "false_alarms": FALSE_ALARMS}))
        return
    click.echo(f"{'author':<16}  {'step':>6}  {'deviation':>9}  {'tolerance':>9}")
    for finding in found.findings:
        author, why = finding.envelope.author.hex()[:16], f": {finding.reason}" if finding.reason else ""
        figures = f"{finding.deviation:>9.3f}  {finding.tolerance:>9.3f}"
        click.echo(f"{author}  {finding.envelope.step:>6}  {figures}  {finding.verdict}{why}")
    unjudged = len(found.of(AuditVerdict.UNJUDGED))
    click.echo(
        f"{len(found.findings)} messages measured again, {len(found.mismatches)} mismatches, "
        f"{unjudged} cannot be judged"
    )
    click.echo(f"False alarms: {FALSE_ALARMS}")


def _row(finding: Remeasurement) -> dict[str, object]:
    is_measured = bool(finding.measured)
    return {
        "author": finding.envelope.author.hex(),
        "step": finding.envelope.step,
        "claimed": finding.envelope.scalars,
        "measured": finding.measured,
        "deviation": finding.deviation if is_measured else None,
        "tolerance": finding.tolerance,
        "verdict": finding.verdict.name.lower(),
        "reason": finding.reason,
    }
