"""An operator's options for a node: those of ``sfnode join``, some of which other commands share. No click.

Each dataclass is created once from what was typed, and never changed. None means that an option was not given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from protocol.node import SnapshotUse
from sfnode.network import Address, bounds, ip_groups, policy
from sfnode.run.amounts import parse_noise, parse_program, parse_rate, parse_size
from sfnode.run.default_directory import HOME
from sfnode.run.option_field import REPEAT, given
from sfnode.run.run_address import RunAddress
from sfnode.run.working_hours import parse_hours
from sfnode.storage import DataDirectory
from sfnode.worker_protocol import DeviceOptions

_THREADS_MAX = 1_024  # more than machines have; with millions, PyTorch aborts, and the model is blamed
_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """Says where a joiner finds the run: in a file, in a node's data directory, or from a peer.

    Attributes:
        bootstrap: nodes of the run, and the run's id.
    """

    bootstrap: RunAddress = field(default_factory=RunAddress)
    run_file: Path | None = None
    data_dir: DataDirectory | None = given(
        None, f"Keep this node's key and state in this directory.  [default: {HOME}/RUN]"
    )
    basis: Path | None = given(
        None,
        "Read the run's published basis from this file. Only the first node needs it; others fetch it from their "
        "peers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Holds what a node computes with.

    Attributes:
        model: hub id, folder, GGUF file, "pypi:PACKAGE" or "embedded:NAME"; None: the manifest's.
        revision: hub commit or version of the package, which must be the manifest's.
        worker_socket: socket of a worker that runs already.
    """

    model: str | None = None
    revision: str | None = None
    data: str | None = given(
        None,
        "Train on this file of rows: JSONL, a JSON list, CSV, TSV or Parquet; or on hub:OWNER/NAME.  [default: the "
        "data that come with an embedded task]",
    )
    eval_data: str | None = given(
        None,
        "Measure the accuracy on this file of held-out rows, with --eval-every.  [default: the data "
        "that come with an embedded task]",
    )
    eval_every: int = given(
        0, "Measure the accuracy each time so many steps are done, and at the end.  [default: never]", bounds=(0, None)
    )
    threads: int | None = given(
        None,
        "Let the training use this many processor threads.  [default: all cores but one]",
        bounds=(1, _THREADS_MAX),
    )
    worker_socket: Path | None = None
    noise: str | None = given(
        None,
        "Add noise to the sum of this node's own rows, of this many lengths of one row: 1, or 0.5. `sfnode status` "
        "shows the epsilon that it gives. For runs with private data and dense cores.  [default: none]",
        form=("MULTIPLIER", parse_noise),
    )
    epsilon_max: str | None = given(
        None,
        "Stop measuring before the epsilon of --noise exceeds this.  [default: no limit]",
        form=("EPSILON", parse_noise),
    )
    private_reward: str | None = given(
        None,
        "Let this command of yours say how good answers are, in place of the run's rule: it reads JSON lines and "
        "prints a number of 0 to 1 for each. For runs that learn from rewards.  [default: the rule]",
        form=("COMMAND", str),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """Holds how a node meets others."""

    name: str | None = given(
        None,
        "Show others this name with the node's key. Nobody checks who you are.",
        form=("NAME", policy.node_names.parse_name),
    )
    listen: tuple[Address, ...] = given(
        (),
        f"Listen on this multiaddr, such as /ip4/0.0.0.0/tcp/4001. {REPEAT}  [default: dial out only]",
        form=("MULTIADDR", policy.parse_listen),
    )
    announce: tuple[Address, ...] = given(
        (),
        f"Tell others to dial this multiaddr, where it is not that of --listen. {REPEAT}",
        form=("MULTIADDR", policy.parse_announce),
    )
    upnp: bool = given(False, "Ask the router to let peers in at the port of --listen while the node runs.")
    no_mdns: bool = given(False, "Do not look for peers on the local network, and do not answer them there.")
    neighbours_fixed: bool = given(False, "Dial only the bootstraps, and exchange no addresses with peers.")
    limit_private: bool = given(
        False,
        "Let private addresses of one network take no more places than public ones may: for a node whose peers "
        "come through a proxy or from a cloud's network.",
    )
    trusted_proxy: tuple[ip_groups.IpNetwork, ...] = given(
        (),
        "Take this IP address or network for a proxy of yours, behind which everybody may be: its connections "
        f"count in all only. {REPEAT}",
        form=("ADDRESS", ip_groups.parse_proxy),
    )
    neighbours_min: int = given(0, "Wait for this many neighbours before training starts.", bounds=(0, None))
    memory_max: int = given(
        bounds.MEMORY_BYTES_MAX >> 20,
        "Let the node take this many MiB, not counting its training worker and the run's coefficients. Above it, "
        "neighbours that dialled in are let go.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Says whether a node trains on others' snapshot before its own replay has proved it."""

    snapshot: SnapshotUse = given(
        SnapshotUse.AUTO,
        "Start training on a state that other authors have signed, before this node's own replay has proved it; "
        "`auto` does so when far behind, in a run whose authors are admitted.",
    )
    snapshot_authors: int = given(3, "Use a snapshot only when at least this many authors have signed it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions:
    """Says how this node shares the model's files, unless the run's owner forbids it, and public data."""

    no_share_model: bool = given(False, "Do not give the model's files to neighbours.")
    share_rate: int = given(
        4,
        "Give neighbours this many MiB of the model's files per second, all together; 0 for as many as they take.",
        bounds=(0, None),
    )
    no_fetch_model: bool = given(False, "Do not take the model's files from neighbours.")
    fetch_rate: int = given(
        0,
        "Take this many MiB of the model's files per second from neighbours; 0 for as many as they give.",
        bounds=(0, None),
    )
    share_data: bool = given(
        False,
        "Give the file of the run's public data to whoever joins, at --share-rate. Only do so where its licence "
        "lets you pass it on.",
    )


class OnBattery(StrEnum):
    """Names what a node does on a machine without mains power."""

    WORK = "work"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Limits when a node trains, and what it may use. The texts stay as they were typed."""

    hours: str | None = given(
        None,
        "Train only in these spans of the day, in local time: 22-7, or 12-13,22:30-6. At other times the node "
        "stores, serves and passes on.  [default: always]",
        form=("SPANS", parse_hours),
    )
    max_upload: str | None = given(
        None,
        "Send no more than this to all peers together: 500kB/s, or 4Mbit/s.  [default: no limit]",
        form=("RATE", parse_rate),
    )
    max_memory: str | None = given(
        None,
        "Let node and training worker together take this much main memory: 1.5GB. More is refused at the start, "
        "and ends the training when it happens later.  [default: no limit]",
        form=("SIZE", parse_size),
    )
    only_when_idle: bool = given(False, "Train only while other programs leave the processor almost alone.")
    on_battery: OnBattery = given(OnBattery.PAUSE, "Do this while the machine runs on its battery.")
    pause_when: tuple[str, ...] = given(
        (),
        f"Do not train while a program of this name runs on this machine: blender, for instance. {REPEAT}",
        form=("PROGRAM", parse_program),
    )
    max_disk: str | None = given(
        None,
        "Stop the node when its data directory has become larger than this: 2GB. The model lies elsewhere.  "
        "[default: no limit]",
        form=("SIZE", parse_size),
    )
    keep_awake: bool = given(
        False, "Keep the machine from going to sleep while the node trains; the screen may still go dark."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Holds all options of ``sfnode join``.

    Attributes:
        web: HOST:PORT to serve the node's page at; None: no page.
        metrics: HOST:PORT for Prometheus; None: nowhere.
    """

    source: RunSource = field(default_factory=RunSource)
    invite: str | None = given(
        None,
        "Use the invitation to the run in this file, or - for one from standard input, where the string to join "
        "has none in it. Given as it is, others on this machine may read it in the process list.",
        form=("[@FILE|-|TEXT]", str),
    )
    key: Path | None = given(
        None,
        "Use the key in this file, which stays there: the data directory gets a link to it.  [default: a key in "
        "the data directory, made at the first start]",
    )
    owner_key: Path | None = given(
        None,
        "Sign with this key, as the run's owner, for the first to use an invitation. Later uses of the same "
        "invitation then change nothing for them.",
    )
    training: TrainingOptions = field(default_factory=TrainingOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    sharing: SharingOptions = field(default_factory=SharingOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    is_relay: bool = given(
        False, "Do not train; only store, serve and pass on updates. This needs no torch.", name="--relay"
    )
    web: str | None = None
    metrics: str | None = None
    is_exiting_when_finished: bool = given(
        False,
        "Stop when the run is over, instead of serving it to others. This is not remembered.",
        name="--exit-when-finished",
    )


def values_of(options: object) -> dict[str, object]:
    """Return all values by field name, from all groups; the names are unique."""
    assert is_dataclass(options)
    values: dict[str, object] = {}
    for each in fields(options):
        value = getattr(options, each.name)
        values |= values_of(value) if is_dataclass(value) else {each.name: value}
    return values


def with_values(options: _Options, values: Mapping[str, object]) -> _Options:
    """Return the options with other values in some fields of all groups. The caller is responsible for their types."""
    if not is_dataclass(options) or isinstance(options, type):
        return options
    names = [each.name for each in fields(options)]
    changed = {n: values[n] if n in values else with_values(getattr(options, n), values) for n in names}
    return replace(options, **changed)
