"""``sfnode join`` with a core that lies or stalls: `NETLAB_BEND=garbage python -m tests.netlab.bent join ...`.

The lies are those of `benchmarks.impostors`. It tells its bootstraps the truth, so that they keep it supplied.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from benchmarks.impostors import empty_promises, garbage, stalls, wrong_digests
from protocol.events import Effect, Event, SendMessage
from protocol.node.node import Node
from sfnode import cli
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.running_node import RunningNode

BENDS = {bend.__name__: bend for bend in (wrong_digests, empty_promises, garbage, stalls)}
VARIABLE = "NETLAB_BEND"


class BentNode(Node):
    """Behaves like the node inside but for what it says to those who dialled it."""

    suppliers: frozenset[str] = frozenset()

    def handle(self, event: Event, now_ms: int, *, is_last: bool = True) -> list[Effect]:
        """The node's effects with bent messages."""
        bend = BENDS[os.environ[VARIABLE]]
        effects: list[Effect] = []
        for effect in super().handle(event, now_ms, is_last=is_last):
            if not isinstance(effect, SendMessage) or effect.peer in self.suppliers:
                effects.append(effect)
            elif message := bend(effect.message):
                effects.append(SendMessage(peer=effect.peer, message=message))
        return effects


class BentLife(RunningNode):
    """A life around such a core."""

    def __init__(self, config: DaemonConfig, *parts: Any) -> None:
        super().__init__(config, *parts)
        bootstraps = (address.peer for address in config.network.bootstrap)
        bent: Any = self.node
        bent.__class__ = BentNode
        bent.suppliers = frozenset(str(peer) for peer in bootstraps)


if __name__ == "__main__":
    vars(sys.modules["sfnode.node.daemon"])["RunningNode"] = BentLife
    cli.main()
