"""``sfnode join``: run a node."""

from __future__ import annotations

import signal

import click
import trio

from protocol.errors import OperatorError
from protocol.node import SnapshotUse
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import (
    DEFAULT_DATA_DIR,
    NOT_NEGATIVE,
    POSITIVE,
    REPEAT,
    FilePath,
    FolderPath,
    choice_option,
    device_options,
    group,
    joiner_model_option,
    json_option,
    number_option,
    run_address_options,
    run_file_option,
)
from sfnode.doctor import foresee_memory
from sfnode.event_log import LEVELS, show_log
from sfnode.node import Daemon, prepare
from sfnode.reporter import Reporter
from sfnode.run import (
    JoinOptions,
    NetworkOptions,
    RunAddress,
    RunSource,
    SharingOptions,
    SnapshotOptions,
    TrainingOptions,
    address_for_others,
)
from sfnode.worker_protocol import free_memory

_NETWORK = NetworkOptions()
_SNAPSHOTS = SnapshotOptions()
_SHARING = SharingOptions()

_source_options = group(
    "source",
    RunSource,
    run_address_options,
    run_file_option,
    click.option(
        "--data-dir", type=FolderPath, help=f"Keep this node's key and state in this directory.  {DEFAULT_DATA_DIR}"
    ),
    click.option(
        "--basis",
        type=FilePath,
        help="Read the run's published basis from this file. Only the first node needs it; others fetch it from their "
        "peers.",
    ),
)
_training_options = group(
    "training",
    TrainingOptions,
    joiner_model_option,
    click.option("--data", help="Train on this JSONL file.  [default: the data that come with an embedded task]"),
    click.option(
        "--eval-data",
        help="Measure the accuracy on this JSONL file of held-out examples, with --eval-every.  [default: the data "
        "that come with an embedded task]",
    ),
    click.option(
        "--eval-every",
        type=NOT_NEGATIVE,
        default=0,
        help="Measure the accuracy each time so many steps are done.  [default: never measure]",
    ),
    click.option(
        "--threads",
        type=POSITIVE,
        help="Let the training use this many processor threads.  [default: all cores but one]",
    ),
    click.option(
        "--worker-socket",
        type=FilePath,
        help="Use the training worker that listens on this socket, so that several nodes share one model in memory.",
    ),
)
_network_options = group(
    "network",
    NetworkOptions,
    click.option(
        "--listen",
        multiple=True,
        help=f"Listen on this multiaddr, such as /ip4/0.0.0.0/tcp/4001. {REPEAT}  [default: dial out only]",
    ),
    click.option(
        "--announce",
        multiple=True,
        help=f"Tell others to dial this multiaddr, where it is not that of --listen. {REPEAT}",
    ),
    click.option(
        "--upnp", is_flag=True, help="Ask the router to let peers in at the port of --listen while the node runs."
    ),
    click.option(
        "--no-mdns", is_flag=True, help="Do not look for peers on the local network, and do not answer them there."
    ),
    click.option(
        "--neighbours-fixed", is_flag=True, help="Dial only the bootstraps, and exchange no addresses with peers."
    ),
    click.option(
        "--limit-private",
        is_flag=True,
        help="Let private addresses of one network take no more places than public ones may: for a node whose peers "
        "come through a proxy or from a cloud's network.",
    ),
    click.option(
        "--trusted-proxy",
        multiple=True,
        help="Take this IP address or network for a proxy of yours, behind which everybody may be: its connections "
        f"count in all only. {REPEAT}",
    ),
    number_option(
        "--neighbours-min",
        _NETWORK.neighbours_min,
        "Wait for this many neighbours before training starts.",
        least=0,
    ),
    number_option(
        "--memory-max",
        _NETWORK.memory_max,
        "Let the node take this many MiB, not counting its training worker and the run's coefficients. Above it, "
        "neighbours that dialled in are let go.",
    ),
)
_snapshot_options = group(
    "snapshots",
    SnapshotOptions,
    choice_option(
        "--snapshot",
        SnapshotUse,
        "Start training on a state that other authors have signed, before this node's own replay has proved it; "
        "`auto` does so when far behind, in a run whose authors are admitted.",
        _SNAPSHOTS.snapshot,
    ),
    number_option(
        "--snapshot-authors",
        _SNAPSHOTS.snapshot_authors,
        "Use a snapshot only when at least this many authors have signed it.",
    ),
)
_sharing_options = group(
    "sharing",
    SharingOptions,
    click.option("--no-share-model", is_flag=True, help="Do not give the model's files to neighbours."),
    number_option(
        "--share-rate",
        _SHARING.share_rate,
        "Give neighbours this many MiB of the model's files per second, all together; 0 for as many as they take.",
        least=0,
    ),
    click.option("--no-fetch-model", is_flag=True, help="Do not take the model's files from neighbours."),
    number_option(
        "--fetch-rate",
        _SHARING.fetch_rate,
        "Take this many MiB of the model's files per second from neighbours; 0 for as many as they give.",
        least=0,
    ),
)


@click.command()
@group(
    "options",
    JoinOptions,
    _source_options,
    click.option("--invite", help="Use this invitation to the run, as its owner's `sfnode run invite` printed it."),
    _training_options,
    device_options,
    _network_options,
    _snapshot_options,
    _sharing_options,
    click.option(
        "--relay",
        "is_relay",
        is_flag=True,
        help="Do not train; only store, serve and pass on updates. This needs no torch.",
    ),
    click.option(
        "--exit-when-finished",
        "is_exiting_when_finished",
        is_flag=True,
        help="Stop when the run is over, instead of serving it to others.",
    ),
)
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    help="Show what is this important or more; `debug` shows every refused connection and every dial.",
)
@json_option
def join(options: JoinOptions, log_level: str, is_json: bool) -> None:
    """Join a run and train in it, or start one from a run file.

    ADDRESS is what a node of the run prints at its start: sfnode:RUN@ADDRESS. Only that run is joined.

    \b
    Join:   sfnode join sfnode:6f1c...@/ip4/203.0.113.7/tcp/4001/p2p/12D3... --model facebook/opt-1.3b
    Start:  sfnode join --run my.run --listen /ip4/0.0.0.0/tcp/4001
    Again:  sfnode join --data-dir ~/.sfnode/my-run-0123456789ab
    """
    if options.network.upnp and not options.network.listen:
        raise OperatorError("--upnp needs a port to be let in at: add --listen /ip4/0.0.0.0/tcp/PORT")
    if not options.is_relay and options.training.worker_socket is None:
        check_can_train()
    level = LEVELS[log_level]
    reporter = Reporter(is_json=True if is_json else None, level=level)
    show_log(reporter, level)
    trio.run(_run_until_stopped, options, reporter)
    reporter.finish()


async def _run_until_stopped(options: JoinOptions, reporter: Reporter) -> None:
    """Prepare and run the daemon; Ctrl-C and SIGTERM end it in good order, whatever it is doing."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, nursery.cancel_scope, reporter)
        config = await prepare(options, reporter)
        await _run(Daemon(config, reporter))
        nursery.cancel_scope.cancel()


def _tell_memory(daemon: Daemon) -> None:
    """What a worker of this node's own will take, before it loads anything."""
    training = daemon.config.training
    if training is None or training.model is None or training.worker_socket is not None:
        return
    plan, free = foresee_memory(daemon.manifest, training.model, training.dtype, training.device_memory), free_memory()
    if plan is not None:
        there = "" if free is None else f"; {free / 1e9:.1f} GB are free"
        sizes = {"load_peak": plan.load_peak, "training_peak": plan.training_peak, "node": plan.node, "free": free}
        daemon.reporter.event("memory_planned", f"memory: {plan}{there}", **sizes)


async def _stop_on_signal(scope: trio.CancelScope, reporter: Reporter) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            reporter.event("stopping", f"stopping on {name}: saying goodbye to the peers", signal=name)
            scope.cancel()


async def _run(daemon: Daemon) -> None:
    manifest, data_dir = daemon.manifest, daemon.config.data_dir
    _tell_memory(daemon)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(daemon.run)
        text = f"run {manifest.name} ({manifest.run_id.hex()[:16]}), data in {data_dir}"
        listening = [f"listening on {address}" for address in addresses] or ["not listening: this node dials out only"]
        given = address_for_others(manifest.run_id, addresses)
        fields = {"run_id": manifest.run_id.hex(), "data_dir": str(data_dir), "addresses": list(addresses)}
        daemon.reporter.event("started", text, *listening, *_how_to_join(given), join=str(given), **fields)


def _how_to_join(given: RunAddress) -> list[str]:
    """What to send to others, where they can dial this node."""
    if not given.nodes:
        return []
    where = "" if given.is_public else " on your own network (--announce names an address for all others)"
    return [f"others join{where} with: sfnode join {given}"]
