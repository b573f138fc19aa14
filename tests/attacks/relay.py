"""A relay with a ledger on its disk, as a process, for attacks on what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.sample_runs import OWNER, Shape, manifest_of, sealed_records, tiny_tensors
from protocol.run.manifest import Manifest, sign_manifest
from sfnode.storage.store import Store
from tests.support.daemons import JoinProcess, free_port
from tests.support.running_nodes import Joins, address_in

_STEPS_LEFT = 1_000  # of the run, beyond those that are held


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A live node, and where it is."""

    process: JoinProcess
    address: str
    manifest: Manifest
    first_free_step: int

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self.process.process is not None
        return self.process.process.pid


@contextmanager
def running_relay(held: Shape) -> Iterator[Relay]:
    """A relay that holds so much, started and through with its own replay."""
    manifest = manifest_of(Shape(authors=held.authors, steps=held.steps + _STEPS_LEFT), tiny_tensors())
    signed = sign_manifest(manifest, OWNER)
    with TemporaryDirectory() as name, Joins(Path(name)) as joins:
        folder, port = Path(name), free_port()
        (folder / "test.run").write_bytes(signed.encode())
        address = address_in(folder / "relay", port)
        store = Store(folder / "relay", signed)
        store.add(sealed_records(manifest, held), is_durable=True)
        store.close()
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        process = joins("relay", "--run", folder / "test.run", "--relay", "--listen", listen)
        process.wait_for_event("started", 300.0)
        yield Relay(process=process, address=address, manifest=manifest, first_free_step=held.steps)
