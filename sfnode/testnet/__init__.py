"""Door: `LocalNetwork`. Run many nodes on this machine, and write the first one's page at the end."""

from sfnode.testnet.local_network import LocalNetwork, LocalNetworkConfig, LocalNetworkResult
from sfnode.testnet.measured_gain import Learnt
from sfnode.testnet.node_process import LocalNode
