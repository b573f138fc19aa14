"""``sfnode doctor``: what works on this machine for a node, and what to do where it does not. Starts no node."""
