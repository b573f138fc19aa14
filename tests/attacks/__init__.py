"""Attacks that once worked, each run against live nodes: what it cost the attacker, and what was lost.

One module for each attack, named in `catalogue.py`. The cure of each has its unit tests elsewhere; here is the whole.
"""

import sfnode.network  # noqa: F401 - first: without fastecdsa, libp2p can be imported only after it
