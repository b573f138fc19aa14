"""The settings of one daemon: the run, its folder, its key, and the operator's choices. No behaviour here."""

from dataclasses import dataclass, field
from pathlib import Path

from protocol.crypto import Signer
from protocol.node import SnapshotUse
from protocol.run import SignedManifest
from sfnode.network import NetworkConfig
from sfnode.node.control import WorkLimits
from sfnode.run import SharingOptions
from sfnode.storage import DataDirectory
from sfnode.worker_protocol import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """Holds the settings of one daemon.

    Attributes:
        training: None: a relay, which stores, serves and floods, without torch.
        rows_sha256: of the file of its own rows; empty without noise.
        owner: the owner's key, with which this node admits the users of invitations; None: it does not have it.
    """

    signed: SignedManifest
    data_dir: DataDirectory
    identity_seed: bytes
    network: NetworkConfig
    training: TrainingConfig | None
    owner: Signer | None = None
    neighbours_min: int = 0
    eval_every_steps: int = 0
    is_exiting_when_finished: bool = False
    snapshot: SnapshotUse = SnapshotUse.NEVER
    snapshot_authors_min: int = 3
    sharing: SharingOptions = field(default_factory=SharingOptions)
    shared_data: Path | None = None
    rows_sha256: str = ""
    limits: WorkLimits = field(default_factory=WorkLimits)
