"""A network of real node processes on this machine: started, watched until they agree, stopped, and checked offline."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from protocol.errors import OperatorError
from protocol.run.manifest import decode_run_untrusted
from protocol.state.coefficients import Coefficients
from sfnode.storage.files import write_durably
from sfnode.storage.store import replayed
from sfnode.testnet.picture import CurvePoint, draw_training_curve
from sfnode.worker.evaluation import evaluate_states
from sfnode.worker.supervisor import worker_process
from sfnode.worker.training_config import TrainingConfig

RUN_FILE = "testnet.run"
PICTURE_FILE = "training.svg"
_START_S = 90.0
_STOP_S = 10.0
_POLL_S = 0.25
_CURVE_POINTS = 12
_NEIGHBOURS_MIN = 3

Watcher = Callable[["list[NodeProcess]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkConfig:
    """What to start.

    Attributes:
        run_bytes: content of the run file.
        nodes, late_nodes: processes at the start, and those that join when half of the steps are done.
        timeout_s: give up when the nodes do not agree by then.
    """

    folder: Path
    run_bytes: bytes
    nodes: int
    late_nodes: int
    training: TrainingConfig
    timeout_s: float


@dataclass(slots=True)
class NodeProcess:
    """One node: its process, and the last thing it said about itself."""

    name: str
    directory: Path
    process: trio.Process
    is_late: bool
    address: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)  # of its own estimates, by step


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkResult:
    """The outcome; ``is_agreed`` only if all nodes and the offline replay hold the same state."""

    is_agreed: bool
    is_stopped_cleanly: bool
    statuses: list[dict[str, Any]]
    state_digests: list[str]
    replayed_digest: str
    before: dict[str, float]
    after: dict[str, float]
    curve: list[CurvePoint]
    seconds: float
    picture: Path
    payload_bytes: int


class LocalNetwork:
    """Runs one test network. ``nodes`` can be watched while it works."""

    def __init__(self, config: LocalNetworkConfig, watcher: Watcher) -> None:
        self._config = config
        self._watcher = watcher
        self._signed = decode_run_untrusted(config.run_bytes)
        self.nodes: list[NodeProcess] = []

    async def run(self) -> LocalNetworkResult:
        """Start, watch, stop, check. OperatorError when a node does not start."""
        config = self._config
        write_durably(config.folder / RUN_FILE, config.run_bytes)
        async with worker_process(threads=config.training.threads) as socket:
            started = time.monotonic()
            try:
                async with trio.open_nursery() as nursery:
                    await self._start_all(nursery, socket)
                    is_agreed = await self._watch(nursery, socket)
                    seconds = time.monotonic() - started
                    is_stopped = await self._stop_all()
                    nursery.cancel_scope.cancel()
            finally:
                self._kill_all()
            return await self._check(socket, is_agreed=is_agreed, is_stopped=is_stopped, seconds=seconds)

    # --- start --------------------------------------------------------------------------------------------

    async def _start_all(self, nursery: trio.Nursery, socket: Path) -> None:
        for index in range(self._config.nodes):
            await self._start(nursery, socket, f"node{index}", is_late=False)
            if index == 0:
                await self._wait_for_address(self.nodes[0])

    async def _start(self, nursery: trio.Nursery, socket: Path, name: str, *, is_late: bool) -> None:
        directory = self._config.folder / name
        command = [sys.executable, "-m", "sfnode", "join", *self._arguments(directory, socket, is_late=is_late)]
        with (self._config.folder / f"{name}.log").open("wb") as errors:
            process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=errors)
        node = NodeProcess(name=name, directory=directory, process=process, is_late=is_late)
        self.nodes.append(node)
        nursery.start_soon(_read_events, node)

    def _arguments(self, directory: Path, socket: Path, *, is_late: bool) -> list[str]:
        training, is_first = self._config.training, not self.nodes
        arguments = ["--data-dir", str(directory), "--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns", "--json"]
        arguments += ["--model", training.model, "--data", str(training.data), "--worker-socket", str(socket)]
        arguments += ["--device", training.device, "--dtype", training.dtype]
        if is_first:
            arguments += ["--run", str(self._config.folder / RUN_FILE)]
            steps = self._signed.manifest.steps
            if training.eval_data is not None:
                every = max(1, steps // _CURVE_POINTS)
                arguments += ["--eval-data", training.eval_data, "--eval-every", str(every)]
        else:
            arguments += ["--bootstrap", self.nodes[0].address]
        if not is_late:
            arguments += ["--neighbours-min", str(min(self._config.nodes - 1, _NEIGHBOURS_MIN))]
        return arguments

    async def _wait_for_address(self, node: NodeProcess) -> None:
        with trio.move_on_after(_START_S):
            while not node.address:
                self._check_alive()
                await trio.sleep(_POLL_S)
        if not node.address:
            raise OperatorError(f"{node.name} did not start within {_START_S:.0f} s; see {node.directory}.log")

    # --- watch --------------------------------------------------------------------------------------------

    async def _watch(self, nursery: trio.Nursery, socket: Path) -> bool:
        """Until all nodes are finished and equal; False when the time is up."""
        half = self._signed.manifest.steps // 2
        deadline = trio.current_time() + self._config.timeout_s
        while trio.current_time() < deadline:
            self._check_alive()
            self._watcher(self.nodes)
            is_half_way = max(node.status.get("step", 0) for node in self.nodes) >= half
            if is_half_way and len(self.nodes) == self._config.nodes:
                await self._start_late(nursery, socket)
            if is_half_way and _is_agreed([node.status for node in self.nodes]):
                return True
            await trio.sleep(_POLL_S)
        return False

    async def _start_late(self, nursery: trio.Nursery, socket: Path) -> None:
        for index in range(self._config.late_nodes):
            await self._start(nursery, socket, f"late{index}", is_late=True)

    def _check_alive(self) -> None:
        for node in self.nodes:
            if node.process.poll() is not None:
                log = self._config.folder / f"{node.name}.log"
                said = log.read_text(errors="replace").strip().splitlines()
                last = said[-1] if said else "it said nothing"
                raise OperatorError(f"{node.name} ended with exit code {node.process.returncode}: {last} (log: {log})")

    # --- stop and check -----------------------------------------------------------------------------------

    async def _stop_all(self) -> bool:
        """SIGTERM to all; whether each ended in time with exit code 0."""
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(_STOP_S):
            for node in self.nodes:
                await node.process.wait()
        return all(node.process.returncode == 0 for node in self.nodes)

    def _kill_all(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()

    async def _check(self, socket: Path, *, is_agreed: bool, is_stopped: bool, seconds: float) -> LocalNetworkResult:
        """Replay the last node's ledger offline, measure the model before and after, draw the picture."""
        with replayed(self.nodes[-1].directory, self._signed.manifest) as replica:
            ledger, state = replica.ledger, replica.coefficients()
        digest = state.digest().hex()
        before, after = await self._accuracy(socket, state)
        curve = self._curve(before, after)
        picture = self._config.folder / PICTURE_FILE
        draw_training_curve(curve, f"{self._signed.manifest.name}: {len(self.nodes)} nodes", picture)
        digests = [node.status.get("state_digest", "") for node in self.nodes]
        return LocalNetworkResult(
            is_agreed=is_agreed and set(digests) == {digest},
            is_stopped_cleanly=is_stopped,
            statuses=[{"name": node.name, **node.status} for node in self.nodes],
            state_digests=digests,
            replayed_digest=digest,
            before=before,
            after=after,
            curve=curve,
            seconds=seconds,
            picture=picture,
            payload_bytes=ledger.updates * ledger.codec.record_bytes,
        )

    async def _accuracy(self, socket: Path, after: Coefficients) -> tuple[dict[str, float], dict[str, float]]:
        training = self._config.training
        if training.eval_data is None:
            return {}, {}
        config = TrainingConfig(
            model=training.model,
            data=None,
            eval_data=training.eval_data,
            device=training.device,
            dtype=training.dtype,
            worker_socket=socket,
        )
        states = [Coefficients(self._signed.manifest), after]
        results = await evaluate_states(self._signed, config, states)
        named = [{"accuracy": r.accuracy, "loss": r.loss, "rows": r.rows} for r in results]
        return named[0], named[1]

    def _curve(self, before: dict[str, float], after: dict[str, float]) -> list[CurvePoint]:
        """Held-out accuracy as the first node measured it on its way, and the mean of all nodes' training losses."""
        accuracies = {
            event["step"]: event["accuracy"] for event in self.nodes[0].events if event["event"] == "evaluated"
        }
        if before:
            accuracies |= {0: before["accuracy"], self._signed.manifest.steps: after["accuracy"]}
        losses: dict[int, list[float]] = {}
        for node in self.nodes:
            for step, loss in node.losses.items():
                losses.setdefault(step, []).append(loss)
        return [
            CurvePoint(
                step=step,
                loss=sum(losses[step]) / len(losses[step]) if step in losses else None,
                accuracy=accuracies.get(step),
            )
            for step in sorted(accuracies.keys() | losses.keys())
        ]


async def _read_events(node: NodeProcess) -> None:
    """Parse the JSON lines of a node until it closes its output."""
    assert node.process.stdout is not None
    rest = b""
    async for data in node.process.stdout:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _take_event(node, json.loads(line))


def _take_event(node: NodeProcess, event: dict[str, Any]) -> None:
    if event["event"] == "progress":
        node.status = event
        if event["loss"] is not None:
            node.losses[event["step"]] = event["loss"]
        return
    node.events.append(event)
    if event["event"] == "started":
        node.address = event["addresses"][0]


def _is_agreed(statuses: Sequence[dict[str, Any]]) -> bool:
    """All nodes are finished and report the same ledger and the same state."""
    if not all(status.get("is_finished") for status in statuses):
        return False
    return len({(status["ledger_root"], status["state_digest"]) for status in statuses}) == 1
