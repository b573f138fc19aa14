"""A run as other programs see it: manifest, basis, and what a node's directory holds of it. No torch, no trio."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from protocol.errors import OperatorError
from protocol.ledger import Envelope
from protocol.run import Manifest, SignedManifest
from protocol.state import Coefficients, Replica
from protocol.subspace import Bases
from sfnode.storage import AtStep, DataDirectory, Store, decode_run_file, disk, stored_basis


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Holds the sum of a ledger's updates; ``steps``: of the run that it covers, up to the last one with an update."""

    coefficients: Coefficients
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """Holds a run that was opened from a file or a directory, or made in this process.

    Attributes:
        signed: the manifest with its owner's signature.
        basis: file of its basis, or what such a file holds; None where directions are drawn, or the file is missing.
        directory: of the node whose records can be read; None: none.
    """

    signed: SignedManifest
    basis: Path | bytes | None = None
    directory: DataDirectory | None = None

    @property
    def manifest(self) -> Manifest:
        """Return the run's definition, which all nodes share."""
        return self.signed.manifest

    def bases(self) -> Bases:
        """Return the run's bases. OperatorError: the file of its basis is missing or damaged."""
        return stored_basis.read_bases(self.manifest, self.basis)

    def updates(self, at_step: AtStep | None = None) -> Iterator[Envelope]:
        """Yield the updates that count, by step and author, each signature checked: `sfnode log show` prints them.

        ``at_step``: as for `state`. A node may be running there. Raises OperatorError, StorageDamagedError.
        """
        last = self._step(at_step)
        with self._stored.replayed(self.manifest) as replica:
            envelopes = replica.ledger.slots.envelopes()
            yield from envelopes if last is None else takewhile(lambda each: each.step < last, envelopes)

    def state(self, at_step: AtStep | None = None) -> StoredState:
        """Replay the ledger. Its sum is what `sfnode eval` measures, `ask` asks and `export` writes.

        ``at_step``: sum only the updates of earlier steps; "best": of the step with the least loss on held-out data.

        Raises OperatorError, StorageDamagedError.
        """
        last = self._step(at_step)
        with self._stored.replayed(self.manifest) as replica:
            made = max(replica.ledger.authors().values(), default=-1) + 1
            coefficients = replica.coefficients() if last is None else replica.coefficients_at(last)
            return StoredState(coefficients=coefficients, steps=made if last is None else min(last, made))

    def _step(self, at_step: AtStep | None) -> int | None:
        return None if at_step is None else self._stored.evaluations.step_at(at_step)

    @property
    def _stored(self) -> DataDirectory:
        if self.directory is None:
            raise OperatorError("this run was not opened from a data directory: open the directory of a node of it")
        return self.directory


def open_run(path: str | Path) -> LocalRun:
    """Open a node's data directory, or the file that `sfnode init` wrote, as `sfnode eval`, `ask` and `export` do.

    OperatorError: there is no run.
    """
    place = Path(path).expanduser()
    if place.is_file():
        signed = decode_run_file(place)
        return LocalRun(signed=signed, basis=stored_basis.basis_beside(signed.manifest, place))
    directory = DataDirectory(place)
    signed = directory.signed_manifest()
    return LocalRun(signed=signed, basis=directory.basis.find(signed.manifest), directory=directory)


def save_run(run: LocalRun, replica: Replica, folder: str | Path) -> LocalRun:
    """Write a run with the updates of ``replica`` as a node's data directory, and return it opened.

    Every command that reads one takes it: `sfnode eval`, `export`, `log`. OperatorError: it holds another run.
    """
    directory = DataDirectory(Path(folder).expanduser())
    store = Store(directory, run.signed)
    try:
        if run.basis is not None:
            basis = run.basis if isinstance(run.basis, bytes) else disk.read_bytes(run.basis, "the basis")
            directory.basis.store(run.manifest, basis, origin="the run")
        store.add((envelope.record for envelope in replica.ledger.slots.envelopes()), is_durable=True)
    finally:
        store.close()
    return open_run(directory.path)
