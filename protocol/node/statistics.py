"""The figures of the node core: where it is in the run, and what it has done so far."""

from dataclasses import dataclass

from protocol.limits import SPAN_STEPS
from protocol.node.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatistics:
    """Holds the figures of one node core at one moment.

    Attributes:
        run, run_id, author: name and id of the run, and this node's key; hex.
        step, steps: next step of this node, and the run's length.
        is_finished: no step is left for this node.
        own_updates, skipped_steps: by this process.
        catching_up: updates that the neighbours say they hold; 0 once this node is live.
        peers: neighbours now.
        ledger_root, state_digest: hex; empty while updates wait to be summed.
        rejected, ignored: messages that were provably wrong; records, statements and attestations of no use.
    """

    run: str
    run_id: str
    author: str
    step: int
    steps: int
    is_finished: bool
    own_updates: int
    skipped_steps: int
    catching_up: int
    peers: int
    ledger_root: str
    state_digest: str
    rejected: int
    ignored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Holds where the run is, and how this node keeps up with it.

    Attributes:
        run_step: the lower median of the highest steps of recently active authors.
        lag_steps: how far this node's last step is behind ``run_step``; 0 before its first update.
        own_updates: valid updates of this node's key in the ledger, also those of earlier starts.
        directions: how many of a round's ``directions_max`` this node measures (SPEC 9.1.6).
        round_s: duration of the last measured round; None before the first.
    """

    run_step: int
    lag_steps: int
    own_updates: int
    directions: int
    directions_max: int
    round_s: float | None


def node_statistics(node: Node) -> NodeStatistics:
    return NodeStatistics(
        run=node.manifest.name,
        run_id=node.manifest.run_id.hex(),
        author=node.author.hex(),
        step=node.clock.next_step,
        steps=node.manifest.steps,
        is_finished=node.own_steps.is_finished,
        own_updates=node.own_steps.updates,
        skipped_steps=node.own_steps.skipped,
        catching_up=0 if node.sync.is_live else node.sync.target_updates,
        peers=node.sync.peers,
        ledger_root=node.replica.ledger.root().hex() if node.replica.is_summed else "",
        state_digest=node.replica.state_digest().hex() if node.replica.is_summed else "",
        rejected=node.rejected.total(),
        ignored=(node.intake.ignored + node.snapshots.ignored).total(),
    )


def run_progress(node: Node) -> RunProgress:
    """Return where the run is now. Reads the bitmaps of this node's updates: microseconds per span."""
    run_step, last_step = node.turn.frontier(), node.replica.ledger.highest_step(node.author)
    affordable, own = node.clock.affordable, node.own_steps
    return RunProgress(
        run_step=run_step,
        lag_steps=max(0, run_step - last_step) if own.updates and not own.is_finished else 0,
        own_updates=own_updates(node),
        directions=affordable.chosen,
        directions_max=node.manifest.method.directions,
        round_s=None if affordable.took_ms is None else affordable.took_ms / 1_000,
    )


def own_updates(node: Node) -> int:
    """Count the updates of this node's key that its ledger holds and that count."""
    ledger = node.replica.ledger
    spans = range(ledger.highest_step(node.author) // SPAN_STEPS + 1)
    return sum(ledger.slots.bucket(span, node.author).valid.bit_count() for span in spans)
