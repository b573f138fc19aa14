"""``sfnode join``: run a node."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError, Reject
from protocol.ledger.statements import StatementCodec, read_invitation
from protocol.node.node_config import SnapshotUse
from protocol.run.admission import AdmissionKind
from protocol.run.manifest import Manifest, SignedManifest, coefficient_count, decode_run_untrusted, is_plain_file_name
from protocol.run.method import BasisKind
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import NOT_NEGATIVE, POSITIVE, FilePath, FolderPath, device_options, json_option
from sfnode.network.bounds import MEMORY_BYTES_MAX
from sfnode.network.memory_guard import MemoryConfig, resident_bytes
from sfnode.network.network_config import NetworkConfig
from sfnode.network.reports import DialReport
from sfnode.network.sessions.file_download import Download, basis_of, fetch, fetch_manifest
from sfnode.node.daemon import Daemon, DaemonConfig
from sfnode.reporter import Reporter
from sfnode.run.proof_of_work import check_work, find_seed
from sfnode.storage.data_files import EMBEDDED, evaluation_file, training_file
from sfnode.storage.files import read_bytes
from sfnode.storage.identity import FILE_NAME, load_or_create_seed, store_seed
from sfnode.storage.statement_files import submit
from sfnode.storage.store import MANIFEST_FILE, decode_run_file, read_manifest
from sfnode.storage.stored_bases import basis_in, read_bases, store_basis
from sfnode.worker.training_config import TrainingConfig

HOME = Path("~/.sfnode")
_SEED_BYTES = 32  # fetching needs an identity, but none that is known: a new one each time
_PROGRESS_S = 1.0
_COEFFICIENT_BYTES = 8


@click.command()
@click.option("--bootstrap", multiple=True, help="Multiaddr of a node of the run, with /p2p/ID. Can be repeated.")
@click.option("--run", "run_file", type=FilePath, help="Run file, instead of fetching the manifest from a peer.")
@click.option("--model", help="Hub id, local folder or embedded:tiny-opt.  [default: the manifest's]")
@click.option("--data", help="Training data (JSONL).  [default: that of an embedded task]")
@click.option("--eval-data", help="Held-out data (JSONL), for --eval-every.")
@click.option("--basis", type=FilePath, help="Published basis of the run, for its first node: others fetch it.")
@click.option("--data-dir", type=FolderPath, help=f"Where this node keeps its state.  [default: {HOME}/RUN]")
@click.option(
    "--listen", multiple=True, help="Multiaddr to listen on, e.g. /ip4/0.0.0.0/tcp/4001. None: dial out only."
)
@click.option("--announce", multiple=True, help="Multiaddr to tell others instead of the listening one.")
@click.option("--upnp", is_flag=True, help="Ask the router to let peers in at --listen, for as long as the node runs.")
@click.option("--invite", help="Invitation to the run, as its owner's `sfnode run invite` printed it.")
@device_options
@click.option("--threads", type=POSITIVE, help="Threads of the training worker.  [default: all cores but one]")
@click.option("--relay", is_flag=True, help="Do not train: store, serve and flood only. Needs no torch.")
@click.option("--neighbours-min", type=NOT_NEGATIVE, default=0, help="Neighbours to wait for before training.")
@click.option(
    "--memory-max",
    type=POSITIVE,
    default=MEMORY_BYTES_MAX >> 20,
    show_default=True,
    help="MiB of the node without its worker, beside the run's coefficients; beyond it inbound neighbours are let go.",
)
@click.option("--no-mdns", is_flag=True, help="Neither look for peers on the local network nor answer there.")
@click.option("--neighbours-fixed", is_flag=True, help="Dial the bootstraps only and exchange no peers.")
@click.option(
    "--eval-every", type=NOT_NEGATIVE, default=0, help="Measure the accuracy every so many steps.  [default: never]"
)
@click.option("--worker-socket", type=FilePath, help="Use the worker that listens there: nodes can share one model.")
@click.option(
    "--snapshot",
    type=click.Choice([each.value for each in SnapshotUse]),
    default=SnapshotUse.AUTO.value,
    show_default=True,
    help="Train on a snapshot that other authors attest until the own replay has proved it; auto: when far behind, in "
    "a run whose authors are admitted.",
)
@click.option(
    "--snapshot-authors", type=POSITIVE, default=3, show_default=True, help="How many at least must attest it."
)
@click.option("--exit-when-finished", is_flag=True, help="Stop when the run is over, instead of serving it on.")
@json_option
def join(run_file: Path | None, bootstrap: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Join a run and train in it, or start one from a run file.

    \b
    Join:   sfnode join --bootstrap /ip4/203.0.113.7/tcp/4001/p2p/12D3... --model facebook/opt-1.3b
    Start:  sfnode join --run my.run --listen /ip4/0.0.0.0/tcp/4001
    Again:  sfnode join --data-dir ~/.sfnode/my-run-0123456789ab
    """
    if options["upnp"] and not options["listen"]:
        raise OperatorError(
            "--upnp is of no use without --listen /ip4/0.0.0.0/tcp/PORT: there is no port to be let in at"
        )
    reporter = Reporter(is_json=True if is_json else None)
    trio.run(_run_until_stopped, reporter, run_file, bootstrap, options)
    reporter.finish()


async def _run_until_stopped(
    reporter: Reporter, run_file: Path | None, bootstrap: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Prepare and run the daemon; Ctrl-C and SIGTERM end it in good order, whatever it is doing."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, nursery.cancel_scope, reporter)
        await _prepare_and_run(reporter, run_file, bootstrap, options)
        nursery.cancel_scope.cancel()


async def _stop_on_signal(scope: trio.CancelScope, reporter: Reporter) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            reporter.event("stopping", f"stopping on {name}: saying goodbye to the peers", signal=name)
            scope.cancel()


def folder_name(manifest: Manifest) -> str:
    """Name of the run's folder below the node's home. A run's name is free text that may come from a stranger: of other
    characters than these it could lead anywhere."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.name).strip("-.")[:64] or "run"
    return f"{name}-{manifest.run_id.hex()[:12]}"


def default_data_dir(manifest: Manifest, home: Path) -> Path:
    """Where a node of this run keeps its state, in a folder of ``home``; one that an earlier release made is kept."""
    earlier = f"{manifest.name}-{manifest.run_id.hex()[:12]}"  # the name as it is
    if is_plain_file_name(earlier) and os.path.isdir(home / earlier):  # False for too long a name, where Path raises
        return home / earlier
    return home / folder_name(manifest)


async def _prepare_and_run(
    reporter: Reporter, run_file: Path | None, bootstrap: tuple[str, ...], options: dict[str, Any]
) -> None:
    signed = await _find_manifest(reporter, run_file, bootstrap, options["data_dir"])
    manifest = signed.manifest
    data_dir = (options["data_dir"] or default_data_dir(manifest, HOME.expanduser())).expanduser()
    training = None if options["relay"] else _training(manifest, options)
    basis = await _find_basis(reporter, manifest, options["basis"], bootstrap, data_dir)
    config = DaemonConfig(
        signed=signed,
        data_dir=data_dir,
        identity_seed=await _find_seed(reporter, manifest, data_dir / FILE_NAME, is_training=training is not None),
        network=NetworkConfig(
            listen=options["listen"],
            announce=options["announce"],
            bootstrap=bootstrap,
            neighbours_fixed=options["neighbours_fixed"],
            local_discovery=not options["no_mdns"],
            port_mapping=options["upnp"],
            memory=MemoryConfig(bytes_max=_memory_bytes_max(manifest, options["memory_max"]), look=resident_bytes),
        ),
        training=training and replace(training, basis=basis),
        neighbours_min=options["neighbours_min"],
        eval_every_steps=options["eval_every"],
        is_exiting_when_finished=options["exit_when_finished"],
        snapshot=SnapshotUse(options["snapshot"]),
        snapshot_authors_min=options["snapshot_authors"],
    )
    if options["invite"] is not None:
        _claim(manifest, options["invite"], config.identity_seed, data_dir)
    daemon = Daemon(config, reporter)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(daemon.run)
        text = f"run {manifest.name} ({manifest.run_id.hex()[:16]}), data in {data_dir}"
        listening = [f"listening on {address}" for address in addresses] or ["not listening: this node dials out only"]
        fields = {"run_id": manifest.run_id.hex(), "data_dir": str(data_dir), "addresses": list(addresses)}
        reporter.event("started", text, *listening, **fields)


def _memory_bytes_max(manifest: Manifest, mebibytes: int) -> int:
    """With the run's coefficients, which no neighbour can help: the state, and the copy on its way to the worker."""
    return (mebibytes << 20) + 2 * _COEFFICIENT_BYTES * coefficient_count(manifest)


async def _find_seed(reporter: Reporter, manifest: Manifest, path: Path, *, is_training: bool) -> bytes:
    """The key in ``path``; a new one, with the work that the run asks for, when there is none."""
    if is_training and manifest.admission.pow_bits and not path.exists():
        expected = 1 << manifest.admission.pow_bits

        def tell(tries: int, seconds: float) -> None:
            left_s = max(0.0, seconds / tries * (expected - tries))
            text = f"looking for a key with {manifest.admission.pow_bits} bits of work: {tries:,} tried of about "
            text += f"{expected:,}, some {left_s:.0f} s more"
            reporter.progress("finding_key", text, tries=tries, tries_expected=expected, seconds=round(seconds, 1))

        store_seed(path, await find_seed(manifest, tell))
    seed = load_or_create_seed(path)
    if is_training:
        check_work(manifest, Signer(seed).author, str(path))
    return seed


def _claim(manifest: Manifest, text: str, seed: bytes, data_dir: Path) -> None:
    """Use an invitation for this node's key; the node tells the others once it runs."""
    if manifest.admission.kind is not AdmissionKind.INVITE:
        kind = manifest.admission.kind.value
        raise OperatorError(f"--invite is of no use: the run's admission is {kind}. Leave it out")
    codec, invitation = StatementCodec(manifest), read_invitation(text)
    data = codec.claim(invitation, Signer(seed).author)
    try:
        codec.check_signed(codec.decode_untrusted(data))
    except Reject:
        raise OperatorError("--invite: the owner of this run has not signed it; it is for another run") from None
    submit(data_dir, [data])


async def _find_manifest(
    reporter: Reporter, run_file: Path | None, bootstrap: tuple[str, ...], data_dir: Path | None
) -> SignedManifest:
    """From the run file, the data directory, or a bootstrap; whichever is given first in this order."""
    if run_file is not None:
        return decode_run_file(run_file)
    if data_dir is not None and (data_dir.expanduser() / MANIFEST_FILE).exists():
        return read_manifest(data_dir.expanduser())
    if not bootstrap:
        raise OperatorError("say which run: --run FILE, --bootstrap MULTIADDR, or the --data-dir of a node that exists")

    reporter.event("fetching_manifest", "asking the bootstrap for the run's manifest", bootstrap=list(bootstrap))
    data = await fetch_manifest(bootstrap, secrets.token_bytes(_SEED_BYTES), on_failure=_teller(reporter, "reach"))
    try:
        return decode_run_untrusted(data)
    except Reject as reject:
        raise OperatorError(f"the bootstrap sent a bad manifest: {reject.detail}. Use another bootstrap") from None


async def _find_basis(
    reporter: Reporter, manifest: Manifest, given: Path | None, bootstrap: tuple[str, ...], data_dir: Path
) -> Path | None:
    """File of the run's published basis in ``data_dir``: of --basis, already there, or from a bootstrap; in this order.

    None for a run whose basis is random.
    """
    if manifest.method.basis is BasisKind.RANDOM:
        if given is not None:
            raise OperatorError("--basis is of no use: the run's basis is random. Leave it out")
        return None
    if given is not None:
        return store_basis(manifest, read_bytes(given, "the basis"), origin=str(given), data_dir=data_dir)
    held = basis_in(data_dir, manifest)
    try:
        read_bases(manifest, held)
        return held
    except OperatorError as error:
        if not bootstrap:
            raise
        if held is not None:
            reporter.event("basis_damaged", f"{error}: asking the bootstrap", file=str(held))
    return await _fetch_basis(reporter, manifest, bootstrap, data_dir)


async def _fetch_basis(reporter: Reporter, manifest: Manifest, bootstrap: tuple[str, ...], data_dir: Path) -> Path:
    wanted = basis_of(manifest)
    text = f"asking the bootstrap for the run's published basis, {wanted.total:,} bytes"
    reporter.event("fetching_basis", text, bootstrap=list(bootstrap), total_bytes=wanted.total)
    told_s = time.monotonic()

    def tell(received: int, total: int) -> None:
        nonlocal told_s
        if received == total or time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            text = f"fetching the basis, {received:,} of {total:,} bytes"
            reporter.progress("basis_progress", text, received_bytes=received, total_bytes=total)

    download, seed = Download(wanted, tell), secrets.token_bytes(_SEED_BYTES)
    data = await fetch(download, bootstrap, seed, on_failure=_teller(reporter, "fetch it from"))
    path = store_basis(manifest, data, origin="the file that the run's owner published", data_dir=data_dir)
    reporter.event("basis_fetched", f"the basis is here: {path}", file=str(path))
    return path


def _teller(reporter: Reporter, what: str) -> Callable[[DialReport], None]:
    def tell(report: DialReport) -> None:
        text = f"cannot {what} {report.address}: {report.reason}; next try in {report.retry_in_s:.0f} s"
        reporter.event("dial_failed", text, address=report.address, reason=report.reason)

    return tell


def _training(manifest: Manifest, options: dict[str, Any]) -> TrainingConfig:
    if options["worker_socket"] is None:
        check_can_train()
    eval_data = evaluation_file(manifest.task, options["eval_data"])
    if options["eval_every"] and eval_data is None:
        raise OperatorError("--eval-every needs --eval-data: a JSONL file of held-out examples")
    return TrainingConfig(
        model=model_reference(manifest, options["model"]),
        data=training_file(manifest.task, options["data"]),
        eval_data=eval_data,
        device=options["device"],
        dtype=options["dtype"],
        threads=options["threads"],
        worker_socket=options["worker_socket"],
    )


def model_reference(manifest: Manifest, model: str | None) -> str:
    """The model's reference for the worker, which checks every file's hash; a plainly different name fails here."""
    wanted = manifest.model.id
    if model is None:
        if wanted.startswith("local:"):
            raise OperatorError(
                f"--model is missing: the run's model is a local folder, {wanted.removeprefix('local:')}"
            )
        return wanted
    is_folder = Path(model).expanduser().is_dir()
    if model != wanted and (not is_folder or wanted.startswith(EMBEDDED)):
        folder = "" if wanted.startswith(EMBEDDED) else ", nor a folder with a copy of it"
        raise OperatorError(f"--model {model} is not the run's model, which is {wanted}{folder}. Use the run's model")
    return model
