"""A node of a run in this process, with its events. Training still runs in a process of its own. No torch."""

import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import trio

from protocol.errors import OperatorError
from protocol.node import NodeStatistics, statistics
from protocol.state import Replica
from sfnode.network import Readiness, policy, unknown_bytes
from sfnode.node import Daemon, Life, prepare
from sfnode.reporter import Reporter
from sfnode.run import JoinOptions, find_manifest, run_address
from sfnode.storage import DataDirectory

_EVENTS_MAX = 1_024  # that wait to be read; the newest are dropped beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """Holds what a node reported: what `sfnode join --json` prints as one line.

    Attributes:
        name: such as "started", "evaluated", "finished"; "progress" each second, with the fields of `status --json`.
        text: the same for people.
    """

    name: str
    text: str
    fields: Mapping[str, object]


class JoinedNode:
    """Shows a node that runs in this process while the block of `join` lasts.

    Attributes:
        string: by which others join the run through this node; empty where it does not listen.
    """

    def __init__(self, daemon: Daemon, string: str, events: trio.MemoryReceiveChannel[NodeEvent]) -> None:
        self.string = string
        self._daemon = daemon
        self._events = events

    def events(self) -> AsyncIterator[NodeEvent]:
        """Return what the node reports, from its start on, until it ends. The last 1,024 unread ones wait."""
        return self._events

    def statistics(self) -> NodeStatistics | None:
        """Return how far the node is; None while it reads its disk, and after its end."""
        running = self._daemon.running
        return None if running is None else statistics.node_statistics(running.node)

    @property
    def replica(self) -> Replica | None:
        """Return the node's ledger and state, to read only; None while it reads its disk.

        None after its end, too: `sfnode.open_run` reads the folder then.
        """
        running = self._daemon.running
        return None if running is None else running.node.replica


@asynccontextmanager
async def join(
    run: str | Path,
    *,
    folder: str | Path | None = None,
    data: str | None = None,
    listen: str | Sequence[str] = (),
    is_relay: bool = False,
    options: JoinOptions | None = None,
) -> AsyncIterator[JoinedNode]:
    """Run a node, as `sfnode join` does, while the block lasts. For trio.

    Args:
        run: a string to join, an address `sfnode:RUN@ADDRESS`, a run file, or the directory of a node that ran before.
        folder: of the node's key and state; None: that one, or the run's folder in ~/.sfnode.
        data: JSONL file of the node's own examples.
        listen: a multiaddr, such as "/ip4/0.0.0.0/tcp/4001", or several.
        is_relay: store and pass on, and do not train.
        options: everything else that `sfnode join` takes; what is given above replaces its fields.

    OperatorError: before the block, an option, a file or a key does not fit. What ends the node later leaves the block
    in an ExceptionGroup, as all errors of trio's tasks do. After `sfnode stop` the events end, and the block goes on.
    """
    chosen = _chosen(options or JoinOptions(), run, folder, [listen] if isinstance(listen, str) else listen)
    if data is not None:
        chosen = replace(chosen, training=replace(chosen.training, data=data))
    chosen = replace(chosen, is_relay=is_relay or chosen.is_relay)
    incoming, events = trio.open_memory_channel[NodeEvent](_EVENTS_MAX)

    async def run_to_end(*, task_status: Readiness = trio.TASK_STATUS_IGNORED) -> None:
        with incoming, life, key:  # whoever reads the events hears of the end
            async with trio.open_nursery() as nursery:
                nursery.start_soon(life.stop_on_request, nursery.cancel_scope, reporter)
                try:
                    await daemon.run(task_status=task_status)
                finally:
                    daemon.running = None  # its replica reads from the disk, which is closed now
                nursery.cancel_scope.cancel()
            if not has_begun:
                raise OperatorError(f"the node on {config.data_dir} was stopped before it had started")

    life, has_begun = Life(), False
    with incoming, events, ExitStack() as key:
        reporter = _EventReporter(incoming)
        config = await prepare(await find_manifest(chosen.source, reporter), chosen, reporter)
        # What else this program holds is not the node's: by the process's memory it would let nobody in.
        memory = replace(config.network.memory, look=unknown_bytes)
        config = replace(config, network=replace(config.network, memory=memory))
        daemon = Daemon(config, reporter)
        key.enter_context(config.data_dir.identity.in_use())
        life.announce(config.data_dir)
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(run_to_end)
            has_begun = True
            life.begin(config.data_dir)
            here = run_address.address_for_others(daemon.manifest, addresses, daemon.data_sharing.bytes)
            string, folder = run_address.join_string(here), str(config.data_dir)
            fields = {"run_id": daemon.manifest.run_id.hex(), "data_dir": folder, "string": string}
            text = f"run {daemon.manifest.name}, data in {folder}"
            reporter.event("started", text, join=str(here), addresses=list(map(str, addresses)), **fields)
            yield JoinedNode(daemon, string, events)
            nursery.cancel_scope.cancel()


def _chosen(options: JoinOptions, run: str | Path, folder: str | Path | None, listen: Sequence[str]) -> JoinOptions:
    """Return the options with the run's source, the directory and the addresses. OperatorError."""
    source, network = options.source, options.network
    if os.path.isdir(run):
        folder = folder or run
    elif isinstance(run, Path) or os.path.isfile(run):  # False for a string that is too long for a name
        source = replace(source, run_file=Path(run))
    else:
        source = replace(source, bootstrap=run_address.parse_run_addresses([run]))
    if folder is not None:
        source = replace(source, data_dir=DataDirectory(Path(folder).expanduser()))
    if listen:
        network = replace(network, listen=tuple(map(policy.parse_listen, listen)))
    return replace(options, source=source, network=network)


class _EventReporter(Reporter):
    """Passes what a node reports into a channel, and prints nothing."""

    def __init__(self, channel: trio.MemorySendChannel[NodeEvent]) -> None:
        super().__init__(stream=StringIO())
        self._channel = channel

    def event_at(self, level: int, name: str, *lines: str, **fields: object) -> None:
        """Pass an event on, unless it is one of debugging."""
        if level >= logging.INFO:
            self.progress(name, "\n".join(lines), **fields)

    def progress(self, name: str, text: str, **fields: object) -> None:
        """Pass the present state on; drop it where nobody has read the events before."""
        try:
            self._channel.send_nowait(NodeEvent(name=name, text=text, fields=fields))
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return
