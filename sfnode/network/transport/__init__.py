"""Door: `Host`. Dials, listens and carries bytes by libp2p, with work-arounds for its faults."""

from sfnode.network.transport.host import DialError, Host, check_can_listen, dialable
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.network.transport.reachability import DialBack, ReachAnswer
