"""A whole run in one process: the real core of each node, in virtual time and without sockets. No torch.

All nodes may share one learner, and so one model. What is not simulated: disks, processes, bandwidth, faults.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from protocol.crypto import Digest, Signer
from protocol.errors import NumericError, OperatorError, StateMismatchError
from protocol.events import Effect, EstimateFinished, EstimateSkipped, Halt, StartEstimate, WorkerReady
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.node import Node, NodeConfig
from protocol.run import AdmissionKind, Manifest
from protocol.state import Replica
from protocol.wire import PeerId
from sfnode.api.runs import Learner, LocalRun, check_learner
from sfnode.api.virtual_network import TICK_MS, VirtualLink, VirtualNetwork

_REMEMBERED = 1 << 17  # envelopes: a record that is in the network now is decoded and verified once


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualWorld:
    """Says what the nodes' world is like.

    Attributes:
        neighbours: links of a node, in the mean; a ring of all nodes is among them.
        link: how long messages travel.
        step_ms: how long a node measures all rows or directions of a step.
        seed: of keys, graph and delays. One seed gives one run, to the bit.
    """

    neighbours: int = 4
    link: VirtualLink = field(default_factory=VirtualLink)
    step_ms: int = 1_000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Holds the end of a simulated run, which is the same on all of its nodes.

    Attributes:
        replica: of the first node: the ledger and its sum.
        skipped: number of steps of all nodes that ended without an update.
        virtual_s: virtual time from the first step to the agreement.
    """

    run: LocalRun
    replica: Replica
    nodes: int
    skipped: int
    virtual_s: float

    @property
    def state_digest(self) -> Digest:
        """Return the digest of the model's state, as the nodes computed it while they ran."""
        return self.replica.state_digest()

    def replay(self) -> Replica:
        """Check and sum all records anew, from nothing, as a late node or an auditor does."""
        fresh = Replica(self.run.manifest)
        for envelope in self.replica.ledger.slots.envelopes():
            fresh.add(envelope.record)
        return fresh


def simulate(
    run: LocalRun,
    learner_of: Callable[[int], Learner],
    nodes: int = 8,
    *,
    world: VirtualWorld | None = None,
    on_step: Callable[[int], None] = lambda _step: None,
) -> Simulation:
    """Run ``nodes`` nodes from the first step to the last, until all hold the same state.

    Args:
        run: an open one, as `LocalModel.make_run` makes it.
        learner_of: called once with each node's number, from 0 on. It may return one learner for all: each step's seed
            then chooses the rows. Or learners with rows of their own, of one `LocalModel`.
        nodes: as many as the manifest admits, 1,024.
        on_step: called with each step that the first node begins.

    Each node checks, passes on and sums the messages of all, so time and memory grow with the square of ``nodes``.

    Raises:
        OperatorError: strangers cannot join the run, too many nodes, or a learner of another run.
        StateMismatchError: a node's state does not follow from its ledger.
    """
    manifest, world = run.manifest, world or VirtualWorld()
    if manifest.admission.kind is not AdmissionKind.OPEN or manifest.admission.pow_bits:
        raise OperatorError("only an open run without proof of work can be simulated: LocalModel.make_run makes one")
    if not 1 <= nodes <= manifest.authors_max:
        raise OperatorError(f"{nodes} nodes: give 1 to {manifest.authors_max:,}, the authors that the run has room for")
    swarm = _Swarm(manifest, world, on_step)
    for number in range(nodes):
        check_learner(run, learner := learner_of(number))
        swarm.add_node(number, learner, expects_peers=nodes > 1)
    swarm.link_up(nodes)
    while not swarm.is_over():
        swarm.run(TICK_MS)
    first, *_ = swarm.nodes.values()
    return Simulation(
        run=run,
        replica=first.replica,
        nodes=nodes,
        skipped=sum(node.own_steps.skipped for node in swarm.nodes.values()),
        virtual_s=swarm.now_ms / 1_000,
    )


class _Swarm(VirtualNetwork):
    """Keeps the nodes of a simulation and their learners; measures when a node asks for it."""

    def __init__(self, manifest: Manifest, world: VirtualWorld, on_step: Callable[[int], None]) -> None:
        super().__init__(seed=world.seed, link=world.link)
        self.nodes: dict[PeerId, Node] = {}
        self._learners: dict[PeerId, Learner] = {}
        self._manifest, self._world, self._on_step = manifest, world, on_step
        self._codec = _SharedCodec(manifest)

    def add_node(self, number: int, learner: Learner, *, expects_peers: bool) -> None:
        """Start a node, whose worker is ready."""
        signer = Signer(sha256(b"simulated node %d of %d" % (number, self._world.seed)).digest())
        replica = Replica(self._manifest)
        replica.ledger.codec = self._codec
        node = Node(self._manifest, signer, NodeConfig(expects_peers=expects_peers), replica)
        name = self.add(f"node {number}", node)
        self.nodes[name], self._learners[name] = node, learner
        self.later(0, name, WorkerReady())

    def link_up(self, nodes: int) -> None:
        """Link all nodes in a ring, and each to some others."""
        chance, names = random.Random(self._world.seed), list(self.nodes)
        pairs = {frozenset((number, (number + 1) % nodes)) for number in range(nodes)}
        for number in range(nodes):
            extra = max(0, min(self._world.neighbours, nodes - 1) - 2 + 1) // 2  # each link counts at both ends
            pairs |= {frozenset((number, other)) for other in chance.sample(range(nodes), extra)}
        for one, *others in sorted(map(sorted, pairs)):
            for other in others:  # none where a node would be linked to itself
                self.connect(names[one], names[other])

    def is_over(self) -> bool:
        """Return whether no node has a step left, and all hold the same updates."""
        if not all(node.own_steps.is_finished for node in self.nodes.values()):
            return False
        return len({node.replica.ledger.root() for node in self.nodes.values()}) == 1

    def carry_out(self, name: PeerId, effect: Effect) -> None:
        """Measure; stop at a state that does not follow from its ledger. There is no disk to store anything on."""
        if isinstance(effect, StartEstimate):
            self._measure(name, effect)
        elif isinstance(effect, Halt):
            raise StateMismatchError(f"{name}: {effect.detail}")
        else:
            super().carry_out(name, effect)

    def _measure(self, name: PeerId, wanted: StartEstimate) -> None:
        """Measure at once, on what the node holds now; let it hear of the result when the step's time is over."""
        node, learner = self.nodes[name], self._learners[name]
        if name == next(iter(self.nodes)):
            self._on_step(wanted.step)
        learner.show(node.replica.coefficients())
        step, scalars = wanted.step, self._manifest.scalars_of_nothing(wanted.step, wanted.directions)
        with suppress(NumericError):
            scalars = learner.estimate(wanted.seed, step, wanted.directions).scalars
        finished = EstimateSkipped(step=step) if scalars is None else EstimateFinished(step=step, scalars=scalars)
        duration_ms = self._world.step_ms * wanted.directions // self._manifest.method.directions
        self.later(duration_ms, name, finished)


class _SharedCodec(EnvelopeCodec):
    """Decodes and verifies each record once for all nodes, which then hold it once: the verdict is a pure function."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._decoded: dict[bytes, Envelope] = {}
        self._verified: set[bytes] = set()

    def decode_untrusted(self, record: bytes) -> Envelope:
        found = self._decoded.get(record)
        if found is None:
            if len(self._decoded) >= _REMEMBERED:
                self._decoded.clear()
                self._verified.clear()
            found = self._decoded[record] = super().decode_untrusted(record)
        return found

    def check_signed(self, envelope: Envelope) -> None:
        if envelope.record not in self._verified:
            super().check_signed(envelope)
            self._verified.add(envelope.record)
