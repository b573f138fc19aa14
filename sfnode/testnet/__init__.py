"""Door: `LocalNetwork`. Run many nodes on this machine, and draw a picture at the end."""

from sfnode.testnet.learnt import Learnt
from sfnode.testnet.local_network import LocalNetwork, LocalNetworkConfig, LocalNetworkResult, LocalNode, NodeOutcome

__all__ = ["Learnt", "LocalNetwork", "LocalNetworkConfig", "LocalNetworkResult", "LocalNode", "NodeOutcome"]
