"""Door: `LocalNetwork`. Run many nodes on this machine, and draw a picture at the end."""

from sfnode.testnet.learnt import Learnt as Learnt
from sfnode.testnet.local_network import (
    LocalNetwork as LocalNetwork,
    LocalNetworkConfig as LocalNetworkConfig,
    LocalNetworkResult as LocalNetworkResult,
    LocalNode as LocalNode,
)
