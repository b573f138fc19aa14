"""A run as other programs see it: manifest, basis, and what a node's directory holds of it. No torch, no trio."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import OperatorError
from protocol.ledger import Envelope
from protocol.run import Manifest, SignedManifest
from protocol.state import Replica
from protocol.subspace import Bases, basis_file
from sfnode.storage import AtStep, DataDirectory, Store, StoredState, decode_run_file, disk, stored_basis


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """Holds a run that was opened from a file or a directory, or made in this process.

    Attributes:
        signed: the manifest with its owner's signature.
        basis: content of the file of its basis; None where directions are drawn, and where the file is not here.
        directory: of the node whose records can be read; None: none.
    """

    signed: SignedManifest
    basis: bytes | None = None
    directory: DataDirectory | None = None

    @property
    def manifest(self) -> Manifest:
        """Return the run's definition, which all nodes share."""
        return self.signed.manifest

    def bases(self) -> Bases:
        """Return the run's bases. OperatorError: the file of its basis is missing."""
        if not self.manifest.method.is_dense:
            return Bases(self.manifest)
        if self.basis is None:
            return stored_basis.read_bases(self.manifest, None)  # raises
        return Bases(self.manifest, basis_file.decode_basis_untrusted(self.manifest, self.basis))

    def updates(self) -> Iterator[Envelope]:
        """Yield the updates that count, by step and author, each signature checked. A node may be running there.

        Raises OperatorError, StorageDamagedError.
        """
        with self._stored.replayed(self.manifest) as replica:
            yield from replica.ledger.slots.envelopes()

    def state(self, at_step: AtStep | None = None) -> StoredState:
        """Replay the ledger, as `sfnode log verify` does; its sum up to a step is what `sfnode eval` measures.

        ``at_step``: sum only the updates of earlier steps; "best": of the step with the least loss on held-out data.

        Raises OperatorError, StorageDamagedError.
        """
        return self._stored.state(at_step)

    @property
    def _stored(self) -> DataDirectory:
        if self.directory is None:
            raise OperatorError("this run was not opened from a data directory: open the directory of a node of it")
        return self.directory


def open_run(path: str | Path) -> LocalRun:
    """Open a node's data directory, or the file that `sfnode init` wrote, with the basis that lies next to it.

    OperatorError: there is no run, or its basis is damaged.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        directory = DataDirectory(place)
        signed = directory.signed_manifest()
        found = directory.basis.find(signed.manifest)
    else:
        directory, signed = None, decode_run_file(place)
        found = stored_basis.basis_beside(signed.manifest, place)
    if found is not None:
        stored_basis.read_bases(signed.manifest, found)  # raises
    basis = None if found is None else disk.read_bytes(found, "the basis")
    return LocalRun(signed=signed, basis=basis, directory=directory)


def save_run(run: LocalRun, replica: Replica, folder: str | Path) -> LocalRun:
    """Write a run with the updates of ``replica`` as a node's data directory, and return it opened.

    Every command that reads one takes it: `sfnode eval`, `export`, `log`. OperatorError: it holds another run.
    """
    directory = DataDirectory(Path(folder).expanduser())
    store = Store(directory, run.signed)
    try:
        if run.basis is not None:
            directory.basis.store(run.manifest, run.basis, origin="the run")
        store.add((envelope.record for envelope in replica.ledger.slots.envelopes()), is_durable=True)
    finally:
        store.close()
    return open_run(directory.path)
