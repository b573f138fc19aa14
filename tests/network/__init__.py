"""The network of a node, on loopback."""
