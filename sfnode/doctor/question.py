"""What the doctor is asked."""

from dataclasses import dataclass

from protocol.run import SignedManifest
from sfnode.network import Address
from sfnode.storage import DataDirectory
from sfnode.worker_protocol import DeviceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Holds the options of the node to check, as for `sfnode join`.

    Attributes:
        data_dir: the node's; None: not known.
        is_new: whether the directory may be missing; else it must be a node's.
        run_id: the run that the bootstraps must be in; None: any run.
    """

    data_dir: DataDirectory | None
    is_new: bool
    signed: SignedManifest | None
    bootstrap: tuple[Address, ...]
    run_id: bytes | None
    listen: tuple[Address, ...]
    model: str | None
    revision: str | None
    devices: DeviceOptions
    is_relay: bool
