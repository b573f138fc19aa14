"""Start real node processes on this machine, watch them until they agree, stop them, and check them offline."""

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from protocol.errors import OperatorError
from protocol.run import SignedManifest
from sfnode.children.child_program import Stillness
from sfnode.page import write_report
from sfnode.status import Status
from sfnode.storage import DataDirectory, disk
from sfnode.testnet.measured_gain import Learnt, measure_learnt, measure_members
from sfnode.testnet.node_process import LocalNode, NodeProcess
from sfnode.worker import worker_process
from sfnode.worker_protocol import TrainingConfig

RUN_FILE = "testnet.run"
PAGE_FILE = "run.html"
_STILL_S = 90.0  # a node computes during its whole start, which takes long on a busy machine
_STOP_S = 10.0
_POLL_S = 0.25
_EVALUATIONS = 12  # of the first node, which the page shows
_EVAL_EVERY_MIN = 4  # steps: measuring a real model takes as long as several of them
_NEIGHBOURS_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkConfig:
    """Holds the settings of a test network.

    Attributes:
        nodes, late_nodes: node processes at the start, and those that join after half of the steps.
        workers: training processes, each with the model in memory; the nodes are spread over them.
        training: with the file of the run's basis, if any; the first node sends it to the others.
        shards: a file of examples for each node; empty: all train on the data of ``training``.
        is_members: also measure what each node reaches with its shard alone.
        timeout_s: give up if the nodes do not agree in this time.
    """

    folder: Path
    signed: SignedManifest
    nodes: int
    late_nodes: int
    training: TrainingConfig
    timeout_s: float
    shards: tuple[Path, ...] = ()
    is_members: bool = False
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkResult:
    """Holds the outcome.

    Attributes:
        is_in_time: whether the run was over for all nodes before the time was up.
        is_agreed: whether it was, and all nodes and the offline replay have the same state.
        learnt: how good the model was and is now; None without evaluation data.
        page: the page of the first node.
    """

    is_in_time: bool
    is_agreed: bool
    is_stopped_cleanly: bool
    nodes: list[LocalNode]
    state_digests: list[str]
    replayed_digest: str
    learnt: Learnt | None
    seconds: float
    page: Path
    payload_bytes: int

    @property
    def statuses(self) -> list[Status]:
        return [node.status for node in self.nodes if node.status is not None]

    @property
    def updates(self) -> int:
        """Return the number of updates that the first node has applied."""
        first = self.nodes[0].status
        return 0 if first is None else first.ledger.updates

    @property
    def forward_rows(self) -> int:
        """Return the number of rows that all nodes have passed forward for their own estimates."""
        return sum(status.training.forward_rows for status in self.statuses)

    @property
    def wire_bytes(self) -> int:
        """Return the number of bytes that all nodes have sent."""
        return sum(status.network.bytes_out for status in self.statuses)


class LocalNetwork:
    """Runs one test network; calls ``watcher`` while its nodes work, and ``on_member`` while each learns alone.

    ``on_end`` hears what is waited for, once the run is over.
    """

    def __init__(
        self,
        config: LocalNetworkConfig,
        watcher: Callable[[list[LocalNode]], None],
        on_member: Callable[[int, int], None] = lambda done, total: None,
        on_end: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._config = config
        self._watcher, self._on_member, self._on_end = watcher, on_member, on_end
        self._signed = config.signed
        self._sockets: list[Path] = []
        self.nodes: list[LocalNode] = []

    async def run(self) -> LocalNetworkResult:
        """Start, watch, stop and check the nodes. OperatorError: one did not start, or ended early."""
        config = self._config
        disk.write_durably(config.folder / RUN_FILE, config.signed.encode())
        async with AsyncExitStack() as workers:
            running = [worker_process(threads=config.training.threads) for _ in range(config.workers)]
            self._sockets = [await workers.enter_async_context(worker) for worker in running]
            started = time.monotonic()
            try:
                await self._start_all()
                is_in_time = await self._watch()
                seconds = time.monotonic() - started
                is_stopped = await stop_all(self.nodes, config.timeout_s, self._on_end)
            finally:
                for process in [node.process for node in self.nodes if node.process.is_alive]:
                    process.kill()
            return await self._check(is_in_time=is_in_time, is_stopped=is_stopped, seconds=seconds)

    # --- start --------------------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        """Start the first nodes; none measures before all of them listen, for many take minutes to start."""
        for index in range(self._config.nodes):
            name = f"node{index}"
            directory = DataDirectory(self._config.folder / name)
            directory.claim()
            directory.control.pause()
            self._start(name)
            if index == 0:
                await self._wait_for_address(self.nodes[0])
        for node in self.nodes:
            await self._wait_for_address(node)
        for node in self.nodes:
            DataDirectory(node.process.directory).control.resume()

    def _start(self, name: str) -> None:
        process = NodeProcess(self._config.folder / name, self._arguments())
        process.start()
        self.nodes.append(LocalNode(name=name, process=process))

    def _arguments(self) -> list[str]:
        training, is_first = self._config.training, not self.nodes
        arguments = ["--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns"]
        data = self._config.shards[len(self.nodes)] if self._config.shards else training.data
        socket = self._sockets[len(self.nodes) % len(self._sockets)]
        arguments += ["--model", str(training.model), "--data", str(data), "--worker-socket", str(socket)]
        arguments += ["--device", training.devices.device, "--dtype", training.devices.dtype]
        if training.devices.device_memory is not None:
            arguments += ["--device-memory", str(training.devices.device_memory)]
        if is_first:
            arguments += ["--run", str(self._config.folder / RUN_FILE)]
            arguments += [] if training.basis is None else ["--basis", str(training.basis)]
            steps = self._signed.manifest.steps
            if training.eval_data is not None:
                every = max(_EVAL_EVERY_MIN, steps // _EVALUATIONS)
                arguments += ["--eval-data", str(training.eval_data), "--eval-every", str(every)]
        else:
            arguments += ["--bootstrap", self.nodes[0].address]
        if len(self.nodes) < self._config.nodes:  # a late one need not wait for others
            arguments += ["--neighbours-min", str(min(self._config.nodes - 1, _NEIGHBOURS_MIN))]
        return arguments

    async def _wait_for_address(self, node: LocalNode) -> None:
        assert node.process.process is not None
        stillness, deadline = Stillness(node.process.process.pid), trio.current_time() + self._config.timeout_s
        while not node.address:
            self._listen()
            self._watcher(self.nodes)
            why = f"it did nothing for {still_s:.0f} s" if (still_s := stillness.look()) > _STILL_S else ""
            if why or trio.current_time() > deadline:
                why = why or f"it still works after {self._config.timeout_s:.0f} s (--timeout)"
                raise OperatorError(f"{node.name} did not start: {why}; see {node.process.logs[-1]}")
            await trio.sleep(_POLL_S)

    # --- watch --------------------------------------------------------------------------------------------

    async def _watch(self) -> bool:
        """Watch until the run is over for all nodes and they are equal; return False where the time is up first."""
        half = self._signed.manifest.steps // 2
        deadline = trio.current_time() + self._config.timeout_s
        while trio.current_time() < deadline:
            self._listen()
            self._watcher(self.nodes)
            is_half_way = max(node.status.node.step if node.status else 0 for node in self.nodes) >= half
            if is_half_way and len(self.nodes) == self._config.nodes:
                for index in range(self._config.late_nodes):
                    self._start(f"late{index}")
            if is_half_way and is_agreed(self.nodes):
                return True
            await trio.sleep(_POLL_S)
        return False

    def _listen(self) -> None:
        """Take in what the nodes have logged. OperatorError: one has ended."""
        for node in self.nodes:
            node.listen()
            if not node.process.is_alive:
                process = node.process
                text = f"{node.name} ended with exit code {process.exit_code}: {process.last_words()}"
                raise OperatorError(f"{text} (log: {process.logs[-1]})")

    # --- check --------------------------------------------------------------------------------------------

    async def _check(self, *, is_in_time: bool, is_stopped: bool, seconds: float) -> LocalNetworkResult:
        """Replay the last node's ledger offline, measure the model before and after, write the first node's page."""
        then = ", then loading the model to evaluate it before and after" if self._config.training.eval_data else ""
        self._on_end(f"replaying the last node's ledger{then}")
        with DataDirectory(self.nodes[-1].process.directory).replayed(self._signed.manifest) as replica:
            ledger, state = replica.ledger, replica.coefficients()
        digest = state.digest().hex()
        training = replace(self._config.training, worker_socket=self._sockets[0])
        rows = "evaluating before and after: {:,} of {:,} rows"
        learnt = await measure_learnt(self._signed, training, state, lambda *done: self._on_end(rows.format(*done)))
        if learnt is not None and self._config.is_members:
            members = await measure_members(self._signed, training, self._config.shards, self._on_member)
            learnt = replace(learnt, members=members)
        page = self._config.folder / PAGE_FILE
        write_report(DataDirectory(self.nodes[0].process.directory), page, lambda _done, _total: None)
        digests = [node.status.node.state_digest if node.status else "" for node in self.nodes]
        return LocalNetworkResult(
            is_in_time=is_in_time,
            is_agreed=is_in_time and set(digests) == {digest},
            is_stopped_cleanly=is_stopped,
            nodes=self.nodes,
            state_digests=digests,
            replayed_digest=digest,
            learnt=learnt,
            seconds=seconds,
            page=page,
            payload_bytes=ledger.updates * ledger.codec.record_bytes,
        )


def is_agreed(nodes: Sequence[LocalNode]) -> bool:
    """Return whether the run is over for all nodes and they report the same ledger and state."""
    statuses = [node.status for node in nodes if node.status is not None and node.status.end.is_over]
    if len(statuses) < len(nodes):
        return False
    return len({(status.node.ledger_root, status.node.state_digest) for status in statuses}) == 1


async def stop_all(nodes: Sequence[LocalNode], limit_s: float, report: Callable[[str], None]) -> bool:
    """Send SIGTERM to all nodes; return whether each ended with code 0, and none hung. ``report`` hears who runs."""
    for node in nodes:
        node.process.terminate()
    pids = {process.pid: node for node in nodes if (process := node.process.process) is not None}
    stillness = {pid: Stillness(pid) for pid in pids}
    with trio.move_on_after(limit_s):
        while alive := [pid for pid, node in pids.items() if node.process.is_alive]:
            report(f"stopping: {len(alive)} of {len(nodes)} nodes still run")
            for node in nodes:
                node.listen()
            if max(stillness[pid].look() for pid in alive) > _STOP_S:
                break
            await trio.sleep(_POLL_S)
    return all(node.process.exit_code == 0 for node in nodes)
