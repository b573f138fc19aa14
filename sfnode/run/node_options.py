"""An operator's options for a node: those of ``sfnode join``, some of which other commands share. No click.

Each dataclass is created once from what was typed, and never changed. None means that an option was not given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path

from protocol.node import SnapshotUse
from sfnode.network import Address, bounds, ip_groups
from sfnode.run.run_address import RunAddress
from sfnode.storage import DataDirectory
from sfnode.worker_protocol import DeviceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """Says where a joiner finds the run: in a file, in a node's data directory, or from a peer.

    Attributes:
        bootstrap: nodes of the run, and the run's id.
        data_dir: None: the run's own folder below `default_directory.HOME`.
        basis: file of the run's published basis.
    """

    run_file: Path | None = None
    bootstrap: RunAddress = field(default_factory=RunAddress)
    data_dir: DataDirectory | None = None
    basis: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """Holds how a node meets others.

    Attributes:
        listen: where; empty: the node only dials out.
        upnp: ask the router for a port.
        no_mdns: leave the local network alone.
        neighbours_fixed: dial the bootstraps only.
        limit_private: count private addresses by network, like public ones.
        trusted_proxy: networks of proxies, whose connections count only towards the total.
        neighbours_min: how many to wait for before training.
        memory_max: MiB of the node's own process, without the run's coefficients.
    """

    listen: tuple[Address, ...] = ()
    announce: tuple[Address, ...] = ()
    upnp: bool = False
    no_mdns: bool = False
    neighbours_fixed: bool = False
    limit_private: bool = False
    trusted_proxy: tuple[ip_groups.IpNetwork, ...] = ()
    neighbours_min: int = 0
    memory_max: int = bounds.MEMORY_BYTES_MAX >> 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Holds what a node computes with.

    Attributes:
        model: hub id, folder, GGUF file, "pypi:PACKAGE" or "embedded:NAME"; None: the manifest's.
        revision: hub commit or version of the package, which must be the manifest's.
        data, eval_data: JSONL files or "embedded:NAME"; None: those of an embedded task.
        eval_every: steps between two measurements of the accuracy; 0: never.
        threads: of the worker; None: all cores but one.
        worker_socket: socket of a worker that runs already.
        noise: multiplier of the noise in this node's messages; None: no noise.
        epsilon_max: stop measuring before it is exceeded; None: no limit.
    """

    model: str | None = None
    revision: str | None = None
    data: str | None = None
    eval_data: str | None = None
    eval_every: int = 0
    threads: int | None = None
    worker_socket: Path | None = None
    noise: str | None = None
    epsilon_max: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Says whether a node trains on others' snapshot before its own replay has proved it.

    Attributes:
        snapshot_authors: how many must attest it.
    """

    snapshot: SnapshotUse = SnapshotUse.AUTO
    snapshot_authors: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions:
    """Says how this node shares the model's files, unless the run's owner forbids it, and public data.

    Attributes:
        no_share_model: give none.
        share_rate: MiB/s given to all peers together; 0: no limit.
        no_fetch_model: take none.
        fetch_rate: MiB/s taken from all peers together; 0: no limit.
        share_data: give the file of the run's public data, at ``share_rate``.
    """

    no_share_model: bool = False
    share_rate: int = 4
    no_fetch_model: bool = False
    fetch_rate: int = 0
    share_data: bool = False


class OnBattery(StrEnum):
    """Names what a node does on a machine without mains power."""

    WORK = "work"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Limits when a node trains, and what it may use. `working_hours` and `amounts` parse the texts.

    Attributes:
        hours: spans of local time; None: always.
        max_upload: rate of everything that it sends; None: no limit.
        max_memory: size of node and worker together; None: no limit.
        only_when_idle: train only while other programs leave the processor idle.
    """

    hours: str | None = None
    max_upload: str | None = None
    max_memory: str | None = None
    only_when_idle: bool = False
    on_battery: OnBattery = OnBattery.PAUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Holds all options of ``sfnode join``.

    Attributes:
        invite: an invitation as text.
        key: file of the node's key; None: that in its data directory.
        is_relay: store, serve and flood, but do not train.
        web: HOST:PORT to serve the node's page at; None: no page.
        metrics: HOST:PORT for Prometheus; None: nowhere.
    """

    source: RunSource
    network: NetworkOptions = field(default_factory=NetworkOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    sharing: SharingOptions = field(default_factory=SharingOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    invite: str | None = None
    key: Path | None = None
    is_relay: bool = False
    web: str | None = None
    metrics: str | None = None
    is_exiting_when_finished: bool = False


def values_of(options: JoinOptions) -> dict[str, object]:
    """Return all values by field name, from all groups; the names are unique."""
    return dict(_leaves("options", options))


def with_values(options: JoinOptions, values: Mapping[str, object]) -> JoinOptions:
    """Return the options with other values in some fields. The caller is responsible for their types."""
    changed = _changed(options, values)
    assert isinstance(changed, JoinOptions)
    return changed


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if not is_dataclass(value) or isinstance(value, type):
        yield name, value
        return
    for each in fields(value):
        yield from _leaves(each.name, getattr(value, each.name))


def _changed(value: object, values: Mapping[str, object]) -> object:
    if not is_dataclass(value) or isinstance(value, type):
        return value
    names = [each.name for each in fields(value)]
    return replace(value, **{n: values[n] if n in values else _changed(getattr(value, n), values) for n in names})
