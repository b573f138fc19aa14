"""Door: `LocalNetwork`. Many nodes on this machine, and the picture at the end."""

from sfnode.testnet.learnt import Learnt
from sfnode.testnet.local_network import LocalNetwork, LocalNetworkConfig, LocalNetworkResult, LocalNode, NodeOutcome

__all__ = ["Learnt", "LocalNetwork", "LocalNetworkConfig", "LocalNetworkResult", "LocalNode", "NodeOutcome"]
