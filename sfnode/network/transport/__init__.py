"""Door: `Host`. Dials, listens and carries bytes by libp2p, with work-arounds for its faults."""

from sfnode.network.transport.host import (
    DialError as DialError,
    Host as Host,
    check_can_listen as check_can_listen,
    dialable as dialable,
    share_port as share_port,
)
from sfnode.network.transport.link import Link as Link, LinkBrokenError as LinkBrokenError
from sfnode.network.transport.reachability import DialBack as DialBack, ReachAnswer as ReachAnswer
