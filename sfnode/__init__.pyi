from protocol.crypto import Signer as Signer
from protocol.errors import (
    Ignore as Ignore,
    NumericError as NumericError,
    OperatorError as OperatorError,
    Reject as Reject,
    SfnodeError as SfnodeError,
    StateMismatchError as StateMismatchError,
    StorageDamagedError as StorageDamagedError,
)
from sfnode.api.joining import JoinedNode as JoinedNode, NodeEvent as NodeEvent, join as join
from sfnode.api.local_model import LocalModel as LocalModel
from sfnode.api.runs import (
    Learner as Learner,
    LocalAuthor as LocalAuthor,
    LocalRun as LocalRun,
    open_run as open_run,
    save_run as save_run,
)
from sfnode.api.simulation import Simulation as Simulation, VirtualWorld as VirtualWorld, simulate as simulate
from sfnode.api.virtual_network import VirtualLink as VirtualLink
from sfnode.run import (
    JoinOptions as JoinOptions,
    MethodOptions as MethodOptions,
    RewardOptions as RewardOptions,
    TaskOptions as TaskOptions,
)
from sfnode.worker_protocol import Estimated as Estimated, Evaluated as Evaluated, NoiseConfig as NoiseConfig

__version__: str
