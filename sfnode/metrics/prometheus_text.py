"""Put a node's status into Prometheus' text. The names are stable: docs/metrics.md lists them, and a test compares."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from sfnode.status import Status


class MetricKind(StrEnum):
    """Names the Prometheus type of a figure."""

    GAUGE = "gauge"
    COUNTER = "counter"  # since the node's start


class Metric(NamedTuple):
    """Describes one exported figure: its Prometheus type, name and help text.

    Attributes:
        value: reads the figure from a status; None means that this node lacks the figure, and omits the line.
    """

    kind: MetricKind
    name: str
    text: str
    value: Callable[[Status], float | None]


_gauge, _counter = partial(Metric, MetricKind.GAUGE), partial(Metric, MetricKind.COUNTER)
INFO = "sfnode_run_info"
INFO_TEXT = "Always 1; its labels name the run, this node's key and its name."

METRICS = (
    _gauge("sfnode_status_timestamp_seconds", "When the node took these figures, since 1970.", lambda s: s.life.time),
    _gauge("sfnode_step", "Next step of this node.", lambda s: s.node.step),
    _gauge("sfnode_run_steps", "Length of the run in steps.", lambda s: s.node.steps),
    _gauge("sfnode_is_finished", "1 when no step is left for this node.", lambda s: s.node.is_finished),
    _gauge("sfnode_updates", "Updates held, of all authors.", lambda s: s.ledger.updates),
    _gauge("sfnode_authors", "Authors of the updates held.", lambda s: s.ledger.authors),
    _gauge("sfnode_void_slots", "Slots for which an author signed two payloads.", lambda s: s.ledger.void_slots),
    _gauge(
        "sfnode_catching_up_updates",
        "Updates that the neighbours hold, while this node fetches them; 0 once it is live.",
        lambda s: s.node.catching_up,
    ),
    _gauge("sfnode_peers", "Neighbours now.", lambda s: s.node.peers),
    _gauge("sfnode_expects_peers", "1 when the node knows of others to dial.", lambda s: s.network.expects_peers),
    _gauge(
        "sfnode_differing_peers",
        "Of a finished node: neighbours that do not hold the same updates.",
        lambda s: s.end.differing_peers,
    ),
    _gauge(
        "sfnode_is_training", "1 for a node that is to contribute, 0 for a relay.", lambda s: s.training.is_training
    ),
    _gauge("sfnode_is_admitted", "1 when this node's key may contribute.", lambda s: s.roster.is_admitted),
    _gauge(
        "sfnode_is_excluded",
        "1 when the owner has excluded this node's key.",
        lambda s: s.roster.excluded_from is not None,
    ),
    _gauge(
        "sfnode_loss_nats",
        "Mean loss of the last estimate's forward rows.",
        lambda s: s.training.loss if s.training.reward is None else None,
    ),
    _gauge(
        "sfnode_reward_ratio",
        "Mean reward, from 0 to 1, of the answers that the last estimate sampled.",
        lambda s: s.training.reward,
    ),
    _gauge(
        "sfnode_accuracy_ratio",
        "Share of right answers, from 0 to 1, when last measured.",
        lambda s: s.training.accuracy,
    ),
    _gauge(
        "sfnode_resident_memory_bytes",
        "Memory of the node's own process, without its worker.",
        lambda s: s.network.memory.resident_bytes,
    ),
    _gauge("sfnode_disk_free_bytes", "Room on the disk of the data directory.", lambda s: s.life.disk_free_bytes),
    _gauge("sfnode_is_paused", "1 while the node is paused, or may not work now.", lambda s: bool(s.life.paused)),
    _counter("sfnode_own_updates_total", "Updates contributed by this process.", lambda s: s.node.own_updates),
    _counter("sfnode_skipped_steps_total", "Steps without an update of this process.", lambda s: s.node.skipped_steps),
    _counter(
        "sfnode_forward_rows_total", "Rows that went forward through the model.", lambda s: s.training.forward_rows
    ),
    _counter(
        "sfnode_worker_restarts_total", "Times that the worker was started anew.", lambda s: s.training.worker_restarts
    ),
    _counter("sfnode_slips_total", "Exceptions that nobody has foreseen.", lambda s: s.life.slips.count),
    _counter("sfnode_received_bytes_total", "Frames of the wire protocol that came.", lambda s: s.network.bytes_in),
    _counter("sfnode_sent_bytes_total", "Frames of the wire protocol that went out.", lambda s: s.network.bytes_out),
    _counter("sfnode_rejected_messages_total", "Messages that were provably wrong.", lambda s: s.node.rejected),
    _counter("sfnode_ignored_messages_total", "Messages of no use here and now.", lambda s: s.node.ignored),
)


class _Figures(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterable[Family]:
        node = self._status.node
        who = {"run": node.run, "run_id": node.run_id, "author": node.author, "name": self._status.life.own_name}
        info = GaugeMetricFamily(INFO, INFO_TEXT, labels=list(who))
        info.add_metric(list(who.values()), 1)
        yield info
        for metric in METRICS:
            value = metric.value(self._status)
            if value is not None:
                family = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
                yield family(metric.name, metric.text, value=float(value))


def exposition(status: Status) -> bytes:
    """Return ``status`` in Prometheus' text format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Figures(status))
    return generate_latest(registry)
