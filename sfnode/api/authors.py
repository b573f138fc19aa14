"""One author of a run in this process: it measures updates, signs them, and applies them. No torch."""

import secrets
from typing import Protocol

from protocol.crypto import Signer, hashing
from protocol.errors import OperatorError
from protocol.state import Coefficients, Replica
from sfnode.api.runs import LocalRun
from sfnode.worker_protocol import Estimated, Evaluated


class Learner(Protocol):
    """What measures for an author, in the place of Flower's client. `LocalModel.learner` makes one.

    A class of one's own may measure anything that has the manifest's tensors.
    """

    def show(self, coefficients: Coefficients) -> None:
        """Take these coefficients as the model's state from now on."""

    def estimate(self, seed: int, step: int, directions: int | None = None) -> Estimated:
        """Measure the round at ``step`` along the directions of ``seed``; ``directions``: only the first ones.

        NumericError: a loss is not finite, so the author skips the step.
        """

    def evaluate(self, rows_max: int = 0) -> Evaluated:
        """Return the model's quality on the first ``rows_max`` held-out rows (0: all)."""


class LocalAuthor:
    """Measures, signs and applies updates of a run by hand, as a node does them by itself.

    Attributes:
        replica: the ledger of all applied updates and their sum.
        learner: shows the state of ``replica`` when it has measured or evaluated last.
    """

    def __init__(self, run: LocalRun, learner: Learner, signer: Signer | None = None) -> None:
        """Take a run and what measures; ``signer``: the author's key, None: a fresh one."""
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
