"""The options of ``sfnode join``: one `JoinOptions`, and the options that concern only the output."""

from __future__ import annotations

import click

from protocol.node import SnapshotUse
from sfnode.cli.options import (
    DEFAULT_DATA_DIR,
    REPEAT,
    choice_option,
    device_options,
    group,
    joiner_model_option,
    json_option,
    number_option,
    run_address_options,
    run_file_option,
    together,
)
from sfnode.cli.value_types import NOT_NEGATIVE, POSITIVE, CheckedText, DataFolder, FilePath, SocketPath
from sfnode.event_log import LEVELS
from sfnode.metrics import METRICS_ADDRESS
from sfnode.network import ip_groups, policy
from sfnode.page import LOOPBACK, PORT, PageAddress
from sfnode.run import (
    JoinOptions,
    LimitOptions,
    NetworkOptions,
    OnBattery,
    RunSource,
    SharingOptions,
    SnapshotOptions,
    TrainingOptions,
    parse_hours,
    parse_noise,
    parse_rate,
    parse_size,
    run_address,
)

_NETWORK = NetworkOptions()
_SNAPSHOTS = SnapshotOptions()
_SHARING = SharingOptions()


_source_options = group(
    "source",
    RunSource,
    run_address_options(run_address.parse_run_addresses),
    run_file_option,
    click.option(
        "--data-dir",
        type=DataFolder,
        help=f"Keep this node's key and state in this directory.  {DEFAULT_DATA_DIR}",
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
        type=SocketPath,
        help="Use the training worker that listens on this socket, so that several nodes share one model in memory.",
    ),
    click.option(
        "--noise",
        type=CheckedText("multiplier", parse_noise),
        help="Add noise to the sum of this node's own rows, of this many lengths of one row: 1, or 0.5. `sfnode "
        "status` shows the epsilon that it gives. For runs with private data and dense cores.  [default: none]",
    ),
    click.option(
        "--epsilon-max",
        type=CheckedText("epsilon", parse_noise),
        help="With --noise: stop measuring before epsilon exceeds this.  [default: no limit]",
    ),
)
_network_options = group(
    "network",
    NetworkOptions,
    click.option(
        "--listen",
        type=policy.parse_listen,
        metavar="MULTIADDR",
        multiple=True,
        help=f"Listen on this multiaddr, such as /ip4/0.0.0.0/tcp/4001. {REPEAT}  [default: dial out only]",
    ),
    click.option(
        "--announce",
        type=policy.parse_announce,
        metavar="MULTIADDR",
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
        type=ip_groups.parse_proxy,
        metavar="ADDRESS",
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
    click.option(
        "--share-data",
        is_flag=True,
        help="Give the file of the run's public data to whoever joins, at --share-rate. Only do so where its licence "
        "lets you pass it on.",
    ),
)


web_option = click.option(
    "--web",
    type=CheckedText("address", PageAddress.parse),
    is_flag=False,
    flag_value=LOOPBACK,
    metavar="[HOST:PORT]",
    help="Serve a page that shows how the node is doing. Where other machines can reach it, a browser needs the token "
    f"that the node prints.  [default: no page; without an address {LOOPBACK}:{PORT} or the next free port]",
)


_limit_options = group(
    "limits",
    LimitOptions,
    click.option(
        "--hours",
        type=CheckedText("spans", parse_hours),
        help="Train only in these spans of the day, in local time: 22-7, or 12-13,22:30-6. At other times the node "
        "stores, serves and passes on.  [default: always]",
    ),
    click.option(
        "--max-upload",
        type=CheckedText("rate", parse_rate),
        help="Send no more than this to all peers together: 500kB/s, or 4Mbit/s.  [default: no limit]",
    ),
    click.option(
        "--max-memory",
        type=CheckedText("size", parse_size),
        help="Let node and training worker together take this much main memory: 1.5GB. More is refused at the start, "
        "and ends the training when it happens later.  [default: no limit]",
    ),
    click.option(
        "--only-when-idle", is_flag=True, help="Train only while other programs leave the processor almost alone."
    ),
    choice_option(
        "--on-battery",
        OnBattery,
        "Do this while the machine runs on its battery.",
        OnBattery.PAUSE,
    ),
)


exit_option = click.option(
    "--exit-when-finished",
    "is_exiting_when_finished",
    is_flag=True,
    help="Stop when the run is over, instead of serving it to others. This is not remembered.",
)
join_options = group(
    "options",
    JoinOptions,
    _source_options,
    click.option(
        "--invite",
        metavar="[@FILE|-|TEXT]",
        help="Use the invitation to the run in this file, or - for one from standard input, where the string to join "
        "has none in it. Given as it is, others on this machine may read it in the process list.",
    ),
    click.option(
        "--key",
        type=FilePath,
        help="Use the key in this file, which stays there: the data directory gets a link to it.  [default: a key in "
        "the data directory, made at the first start]",
    ),
    _training_options,
    device_options,
    _network_options,
    _snapshot_options,
    _sharing_options,
    _limit_options,
    click.option(
        "--relay",
        "is_relay",
        is_flag=True,
        help="Do not train; only store, serve and pass on updates. This needs no torch.",
    ),
    web_option,
    click.option(
        "--metrics",
        is_flag=False,
        flag_value=METRICS_ADDRESS,
        metavar="[HOST:PORT]",
        help="Show figures to Prometheus at http://HOST:PORT/metrics, to this machine only.  [default: none; without "
        f"an address {METRICS_ADDRESS}]",
    ),
    exit_option,
)
output_options = together(
    click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        default="info",
        show_default=True,
        help="Show what is this important or more; `debug` shows every refused connection and every dial.",
    ),
    json_option,
)
