"""What this node says of itself to others: the addresses at which they can dial it, and its hello."""

from dataclasses import replace

from protocol.wire import Hello
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import Address
from sfnode.network.sessions import ServedRun, handshake
from sfnode.network.transport import Host, dialable


class Introduction:
    """Names this node's addresses: those that the operator announces, or else a mapped one and the listening ones."""

    def __init__(self, config: NetworkConfig, run: ServedRun, host: Host) -> None:
        self._agent, self._name = config.agent, config.own_name
        self.run = run
        self._host = host
        self._given = self._announced = config.announce

    def mapped(self, address: Address) -> None:
        """Announce the address that the router forwards to this node."""
        self._announced = (*self._given, address)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses at which others can dial this node, with its peer id; announced ones first.

        The listening ones are among them while the network runs.
        """
        listening = [found for address in self._host.addresses for found in dialable(address)]
        return tuple(replace(address, peer=self._host.peer) for address in (*self._announced, *listening))

    def hello(self) -> Hello:
        """Return the hello that this node says now."""
        own = (*self._announced, *(() if self._given else self._host.addresses))
        name = () if self._name is None else (self._name.text,)  # first, so that it is in the hello of many addresses
        listen = (*name, *(address.transport for address in own))
        return handshake.own_hello(
            run_id=self.run.run_id, agent=self._agent, listen=listen, head_step=self.run.head_step()
        )
