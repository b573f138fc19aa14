"""The owner of the run: makes statements at some time, and insists until a node that is up holds each of them."""

from __future__ import annotations

from collections.abc import Callable

from protocol.crypto.keys import Signer
from protocol.events import StatementSubmitted
from protocol.ledger.statements import StatementCodec
from tests.simulation.environment import Environment
from tests.simulation.host import Host
from tests.simulation.scenario import stream
from tests.support.manifests import OWNER

_LOOK_MS = 700


class Owner:
    """It is not in the network itself: it hands what it signs to one node after another."""

    def __init__(self, environment: Environment, hosts: Callable[[], list[Host]]) -> None:
        self._environment = environment
        self._hosts = hosts
        self._codec = StatementCodec(environment.scenario.manifest)
        self._random = stream(environment.scenario.seed, "statements")
        self._made: list[bytes] = []

    def admit(self, signer: Signer, *, at_ms: int | None = None) -> None:
        """Admit an author then, or at some time while everything breaks; nothing to do where the run is open."""
        if self._environment.scenario.is_listed:
            self._make(self._codec.admit(OWNER, signer.author), at_ms)

    def exclude(self) -> None:
        """Exclude somebody from some step on, at some time; perhaps twice, from different steps."""
        for _ in range(self._environment.scenario.exclusions):
            signer = self._random.choice(self._hosts()).signer
            for _ in range(self._random.randint(1, 2)):
                from_step = self._random.randrange(self._environment.scenario.manifest.steps)
                self._make(self._codec.exclude(OWNER, signer.author, from_step), None)

    def exclude_below(self, step: int) -> None:
        """Exclude somebody from a round below ``step`` on, now."""
        signer = self._random.choice(self._hosts()).signer
        self._make(self._codec.exclude(OWNER, signer.author, self._random.randrange(step)), 0)

    def is_heard(self) -> bool:
        """Whether every statement so far is held by some node that is up."""
        nodes = [host.node for host in self._hosts() if host.node is not None and not host.is_hostile]
        decoded = map(self._codec.decode_untrusted, self._made)
        return all(any(node.replica.ledger.roster.covers(each) for node in nodes) for each in decoded)

    def _make(self, statement: bytes, at_ms: int | None) -> None:
        self._made.append(statement)
        delay_ms = self._random.randrange(self._environment.scenario.safety_ms) if at_ms is None else at_ms
        self._environment.schedule(delay_ms, lambda: self._insist(statement))

    def _insist(self, statement: bytes) -> None:
        decoded = self._codec.decode_untrusted(statement)
        up = [host for host in self._hosts() if host.is_up and not host.is_hostile]
        if not any(host.node is not None and host.node.replica.ledger.roster.covers(decoded) for host in up):
            self._environment.trace("statement", statement)
            if up:
                self._random.choice(up).handle(StatementSubmitted(statement=statement))
        self._environment.schedule(_LOOK_MS, lambda: self._insist(statement))
