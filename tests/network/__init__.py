"""The network of a node, on loopback."""

import sfnode.network  # noqa: F401 - first: without fastecdsa, libp2p can be imported only after it
