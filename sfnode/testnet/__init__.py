"""Door: `LocalNetwork`. Run many nodes on this machine, and draw a picture at the end."""

from sfnode.testnet.local_network import (
    LocalNetwork as LocalNetwork,
    LocalNetworkConfig as LocalNetworkConfig,
    LocalNetworkResult as LocalNetworkResult,
    LocalNode as LocalNode,
)
from sfnode.testnet.measured_gain import Learnt as Learnt
