"""Door: `LocalNetwork`. Run many nodes on this machine, and draw a picture at the end."""

from sfnode.testnet.learnt import Learnt as Learnt
from sfnode.testnet.local_network import (
    LocalNetwork as LocalNetwork,
    LocalNetworkConfig as LocalNetworkConfig,
    LocalNode as LocalNode,
)
from sfnode.testnet.network_result import LocalNetworkResult as LocalNetworkResult, NodeOutcome as NodeOutcome
