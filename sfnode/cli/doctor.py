"""``sfnode doctor``: check a machine, a run and a node, and print advice."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
import trio

import sfnode.doctor  # whose `Examination` imports libp2p when it is asked for
from protocol.errors import OperatorError
from sfnode.cli import options
from sfnode.cli.exit_codes import ExitCode
from sfnode.cli.option_values import NodeFolder
from sfnode.cli.remembered_options import given_settings, recall
from sfnode.doctor import Finding, Verdict, summary_of
from sfnode.network import Address, policy
from sfnode.reporter import printable
from sfnode.run import (
    JoinOptions,
    NetworkOptions,
    RunSource,
    TrainingOptions,
    default_directory,
    find_data_directory,
    option_field,
    run_address,
)
from sfnode.storage import DataDirectory, decode_run_file
from sfnode.worker_protocol import DeviceOptions

_MARKS = {
    Verdict.OK: ("ok  ", "green"),
    Verdict.WARNING: ("warn", "yellow"),
    Verdict.FAIL: ("FAIL", "red"),
    Verdict.UNKNOWN: ("?   ", "cyan"),
}


@click.command()
@click.option(
    "--data-dir", type=NodeFolder, help="Examine this data directory: of a node, running or not, or of a new one."
)
@options.run_address_options(run_address.put_together)
@options.run_file_option
@options.joiner_model_option
@click.option(
    "--listen",
    metavar="MULTIADDR",
    multiple=True,
    help=f"Check that a node can listen on this multiaddr; peers are asked to dial the first. {option_field.REPEAT}",
)
@options.device_options
@click.option(
    "--relay",
    "is_relay",
    is_flag=True,
    help="Check for a node that does not train, and leave torch and the model alone.",
)
@options.json_option
def doctor(
    data_dir: DataDirectory | None,
    bootstrap: list[str],
    run_file: Path | None,
    model: str | None,
    revision: str | None,
    listen: tuple[str, ...],
    devices: DeviceOptions,
    is_relay: bool,
) -> None:
    """Check whether a node can run here, and say what to do if not.

    It looks at disk, ports, bootstraps, reachability, device, model and memory. Give it the options that you would give
    to `sfnode join`; those that the node of --data-dir remembers need not be given. Without any it examines the only
    node of this machine. Nothing is loaded, and no node starts. The exit code is 0 unless a check fails.

    \b
    Example: sfnode doctor @string.txt --model facebook/opt-1.3b
             sfnode doctor --data-dir ~/.sfnode/my-run-0123456789ab --json
    """
    signed = decode_run_file(run_file) if run_file else None
    if data_dir is None and signed is not None:
        data_dir = find_data_directory(signed.manifest, None)
    if data_dir is None and not (bootstrap or signed or model) and len(nodes := default_directory.nodes_here()) == 1:
        (data_dir,) = nodes
    faults: list[Finding] = []
    address, listening = run_address.combined([]), list[Address]()
    for text in bootstrap:
        with _noted(faults, "bootstrap address", "copy it whole, as that node prints it at its start"):
            address = run_address.combined([address, run_address.parse_run_addresses([text])])
    for text in listen:
        with _noted(faults, f"listen {text}", "give /ip4/0.0.0.0/tcp/PORT"):
            listening.append(policy.parse_listen(text))
    chosen = JoinOptions(
        source=RunSource(bootstrap=address, data_dir=data_dir),
        network=NetworkOptions(listen=tuple(listening)),
        training=TrainingOptions(model=model, revision=revision),
        devices=devices,
        is_relay=is_relay,
    )
    if data_dir is not None:
        with _noted(faults, "settings", "correct the file, or use `sfnode config set`"):
            chosen = recall(chosen, given_settings(click.get_current_context()), data_dir).options
    findings: list[Finding] = []

    def report(finding: Finding) -> None:
        findings.append(finding)
        if not options.is_json():
            _say(finding)

    for fault in faults:
        report(fault)
    trio.run(sfnode.doctor.Examination(chosen, signed, report, is_new=bool(signed or bootstrap)).run)
    last = summary_of(findings)
    if options.is_json():
        rows = [{**asdict(finding), "verdict": finding.verdict.value} for finding in findings]
        options.print_json({"ok": last.verdict is Verdict.OK, "checks": rows})
    else:
        _say(last)
    if last.verdict is Verdict.FAIL:
        raise SystemExit(ExitCode.FAILED)


@contextmanager
def _noted(faults: list[Finding], check: str, advice: str) -> Iterator[None]:
    """Add a finding to ``faults`` for an operator's mistake in the block, which then ends there."""
    try:
        yield
    except OperatorError as error:
        faults.append(Finding(Verdict.FAIL, check, str(error), advice))


def _say(finding: Finding) -> None:
    mark, colour = _MARKS[finding.verdict]
    click.echo(f"{click.style(mark, fg=colour)}  {printable(finding.check)}: {printable(finding.text)}")
    if finding.advice:
        click.echo(f"      -> {printable(finding.advice)}")
