"""An operator's choices for training on this machine, and the request that opens a worker session with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.crypto import Author
from protocol.run import SignedManifest
from sfnode.storage import RenewedBasis
from sfnode.worker_protocol import OpenSession

NOBODY: Final = Author(bytes(32))  # the author in a session that signs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Holds local choices for training; the options of ``sfnode join`` have the same names.

    ``model``: None while only neighbours have it. ``basis``: a file, for a run with a published basis. ``renewals``:
    the bases that replaced it.
    """

    model: str | None
    data: str | None
    eval_data: str | None = None
    device: str = "auto"
    dtype: str = "fp32"
    device_memory: int | None = None
    threads: int | None = None
    worker_socket: Path | None = None
    basis: Path | None = None
    renewals: tuple[RenewedBasis, ...] = ()

    def open_session(self, signed: SignedManifest, author: Author = NOBODY) -> OpenSession:
        """Return the request that opens a session for this run; to omit a data file, `replace` it first."""
        assert self.model is not None, "it is found before a worker is asked for anything"
        return OpenSession(
            manifest=signed.encode(),
            basis=None if self.basis is None else str(self.basis),
            renewals=self.renewals,
            model=self.model,
            data=self.data,
            eval_data=self.eval_data,
            author=author,
            device=self.device,
            dtype=self.dtype,
            device_memory=self.device_memory,
        )
