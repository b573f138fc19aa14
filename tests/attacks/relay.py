"""A relay as a process, for attacks on its doors and on what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks.sample_runs import OWNER, Shape, manifest_of, sealed_records, tiny_tensors
from protocol.run.manifest import Manifest, sign_manifest
from sfnode.network.policy.addresses import parse_address
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.attacks.visitor import cpu_s, pid_of
from tests.support.daemons import JoinProcess, free_port
from tests.support.patience import Patience, Stopwatch, waits_of
from tests.support.running_nodes import address_in, running, wait_until

_NOTHING: Final = Shape(authors=1, steps=0)
_STEPS_LEFT = 1_000  # of the run, beyond those that are held
RUN_FILE: Final = "test.run"  # beside its directory
_STATUS_NEVER_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A live node, and where it listens."""

    process: JoinProcess
    address: str
    manifest: Manifest
    first_free_step: int

    @property
    def host(self) -> str:
        return parse_address(self.address).host

    @property
    def port(self) -> int:
        return parse_address(self.address).port

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    @property
    def pid(self) -> int:
        return pid_of(self.process)

    def cpu_s(self) -> float:
        """Return the processor time that it has taken so far."""
        return cpu_s(self.pid)

    async def status_s(self) -> float:
        """Return how long it takes to write its next status; less what it stands in the queue for a processor."""
        stopwatch, patience = Stopwatch(partial(waits_of, [self.pid])), Patience(_STATUS_NEVER_S)
        last = self.process.status().get("time")
        while self.process.status().get("time") == last and self.is_alive and not patience.is_over():
            await trio.sleep(0.05)
        return stopwatch.seconds()


@contextmanager
def running_relay(
    held: Shape = _NOTHING, *, prefix: tuple[str, ...] = (), arguments: tuple[str, ...] = ()
) -> Iterator[Relay]:
    """A relay that holds so much, started and through with its own replay.

    ``prefix``: a command that runs it; ``arguments``: more of ``sfnode join``.
    """
    manifest = manifest_of(Shape(authors=held.authors, steps=held.steps + _STEPS_LEFT), tiny_tensors())
    signed = sign_manifest(manifest, OWNER)
    with TemporaryDirectory(prefix="sfnode-") as name:
        directory, run_file, port = Path(name, "relay"), Path(name, RUN_FILE), free_port()
        run_file.write_bytes(signed.encode())
        address = address_in(directory, port)
        store = Store(DataDirectory(directory), signed)
        store.add(sealed_records(manifest, held), is_durable=True)
        store.close()
        given = ["--run", str(run_file), "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{port}", *arguments]
        process = JoinProcess(directory=directory, arguments=given, prefix=prefix)
        with running([process]):
            process.wait_for_event("started", 300.0)
            wait_until(process.status, "the relay's first status")
            yield Relay(process=process, address=address, manifest=manifest, first_free_step=held.steps)
