"""Door: `LocalNetwork`. Run many nodes on this machine, and draw a picture at the end."""

from sfnode.testnet.local_network import LocalNetwork, LocalNetworkConfig, LocalNetworkResult, LocalNode
from sfnode.testnet.measured_gain import Learnt
