"""A run as other programs see it: manifest, basis, what a node's directory holds of it; its authors in this process.

No torch, no trio.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from protocol.crypto import Signer, hashing
from protocol.errors import OperatorError
from protocol.ledger import Envelope, Roster
from protocol.run import Manifest, SignedManifest
from protocol.state import Coefficients, Replica
from protocol.subspace import Bases
from sfnode.storage import AtStep, DataDirectory, Store, decode_run_file, disk, evaluations, merge_ledger, stored_basis
from sfnode.worker_protocol import Estimated, Evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Holds the sum of a ledger's updates; ``steps``: of the run that it covers, up to the last one with an update.

    ``roster``: by which they count.
    """

    coefficients: Coefficients
    steps: int
    roster: Roster = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """Holds a run that was opened from a file or a directory, or made in this process.

    Attributes:
        signed: the manifest with its owner's signature.
        basis: file of its basis, or what such a file holds; None where directions are drawn, or the file is missing.
        directory: of the node whose records can be read; None: none.
    """

    signed: SignedManifest
    basis: Path | bytes | None = field(default=None, repr=False)
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
        with self._replayed(at_step) as (replica, _, last):
            envelopes = replica.ledger.slots.envelopes()
            yield from envelopes if last is None else takewhile(lambda each: each.step < last, envelopes)

    def state(self, at_step: AtStep | None = None) -> StoredState:
        """Replay the ledger. Its sum is what `sfnode eval` measures, `ask` asks and `export` writes.

        ``at_step``: sum only the updates of earlier steps; "best": of the step with the least loss on held-out data.

        Raises OperatorError (a step that no update here has reached, too), StorageDamagedError.
        """
        with self._replayed(at_step) as (replica, made, last):
            coefficients = replica.coefficients() if last is None else replica.coefficients_at(last)
            steps = made if last is None else min(last, made)
            return StoredState(coefficients=coefficients, steps=steps, roster=replica.ledger.roster)

    @contextmanager
    def _replayed(self, at_step: AtStep | None) -> Iterator[tuple[Replica, int, int | None]]:
        """Replay the ledger; yield it, its number of steps, and that of ``at_step``. OperatorError: no such step."""
        last = None if at_step == evaluations.BEST_STEP else at_step
        if last is not None and (isinstance(last, bool) or not hasattr(last, "__index__")):
            raise OperatorError(f"step {last!r}: give a whole number, or {evaluations.BEST_STEP!r}")
        if last is not None and last < 0:
            raise OperatorError(f"step {last}: the first step is 0")
        with self._stored.replayed(self.manifest) as replica:
            local_steps = self.manifest.method.local_steps  # of a round, which its first step names
            made = max(replica.ledger.authors().values(), default=-local_steps) + local_steps
            if last is not None and last > made:
                raise OperatorError(f"{self._stored.path} has updates of {made:,} steps, and not yet of {last:,}")
            yield replica, made, self._stored.evaluations.step_at(at_step, replica.ledger.roster)

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
    """Write a run with all that counts in ``replica`` as a node's data directory, and return it opened.

    Every command that reads one takes it: `sfnode eval`, `export`, `log`. What it holds already stays, and is not
    written again. OperatorError: it or ``replica`` holds another run; it holds other updates of the same steps.
    """
    if (found := replica.manifest.run_id) != run.manifest.run_id:
        raise OperatorError(f"the replica is of run {found.hex()}, and not of {run.manifest.run_id.hex()}")
    directory = DataDirectory(Path(folder).expanduser())
    with closing(Store(directory, run.signed)) as store:
        held = store.replica(run.manifest)
        _check_voids_nothing(replica, held, directory)
        if run.basis is not None:
            basis = run.basis if isinstance(run.basis, bytes) else disk.read_bytes(run.basis, "the basis")
            directory.basis.store(run.manifest, basis, origin="the run")
        merge_ledger(replica.ledger, store, held)
    return open_run(directory.path)


def _check_voids_nothing(replica: Replica, held: Replica, directory: DataDirectory) -> None:
    """Raise OperatorError where both count another update for one step of an author, as two simulations do."""
    counted = {(each.author, each.step): each.payload for each in held.ledger.slots.envelopes()}
    fresh = replica.ledger.slots.envelopes()
    if voided := sum(counted.get((each.author, each.step), each.payload) != each.payload for each in fresh):
        raise OperatorError(
            f"{directory} holds other updates of the same authors for the same steps, such as those of another "
            f"simulation: {voided:,} would count no more. Save into another folder"
        )


class Learner(Protocol):
    """What measures for an author, in the place of Flower's client. `LocalModel.learner` makes one.

    A class of one's own may measure anything that has the manifest's tensors.
    """

    def show(self, coefficients: Coefficients) -> None:
        """Take these coefficients as the model's state from now on. OperatorError: they are of another run."""

    def estimate(self, seed: int, step: int, directions: int | None = None) -> Estimated:
        """Measure the round at ``step`` along the directions of ``seed``; ``directions``: only the first ones.

        NumericError: a loss is not finite, so the author skips the step.
        """

    def evaluate(self, rows_max: int = 0) -> Evaluated:
        """Return the model's quality on the first ``rows_max`` held-out rows (0: all)."""


def check_learner(run: LocalRun, learner: Learner) -> None:
    """Raise OperatorError where ``learner`` has the manifest of another run; one of one's own may have none."""
    measured: Manifest = getattr(learner, "manifest", run.manifest)
    if (found := measured.run_id) != run.manifest.run_id:
        raise OperatorError(f"the learner measures for run {found.hex()}, and not for {run.manifest.run_id.hex()}")


class LocalAuthor:
    """Measures, signs and applies updates of a run by hand, as a node does them by itself.

    Attributes:
        replica: the ledger of all applied updates and their sum.
        learner: shows the state of ``replica`` when it has measured or evaluated last.
    """

    def __init__(self, run: LocalRun, learner: Learner, signer: Signer | None = None) -> None:
        """Take a run and what measures; ``signer``: the author's key, None: a fresh one.

        OperatorError: the learner measures for another run.
        """
        check_learner(run, learner)
        self.replica = Replica(run.manifest)
        self.learner = learner
        self.signer = signer or Signer(secrets.token_bytes(32))

    def measure(self, step: int) -> bytes:
        """Measure one round on the present state; return its signed record, which nobody has applied yet.

        A second record for one step voids the first, on every node. NumericError: a loss is not finite. OperatorError:
        the run has no such step.
        """
        if not 0 <= step < self.replica.manifest.steps:
            raise OperatorError(f"step {step!r}: the run has the steps 0 ... {self.replica.manifest.steps - 1}")
        self.learner.show(self.replica.coefficients())
        seed = hashing.seed_of(self.replica.manifest.run_id, self.signer.author, step)
        measured = self.learner.estimate(seed, step)
        return self.replica.ledger.codec.seal(self.signer, step, measured.scalars).record

    def apply(self, record: bytes) -> None:
        """Check an update, of this author or of another, and add it to the state.

        Reject: no honest author made it. Ignore: it is held already, or cannot count now.
        """
        self.replica.add(record)
