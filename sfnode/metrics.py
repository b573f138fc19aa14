"""Serve a running node's figures for Prometheus at `GET /metrics`. Read-only, and bounded in time, size and number.

The names in `METRICS` are stable: docs/metrics.md lists them, and a test compares.

An exception in one connection ends only that connection, and counts as a slip.
"""

import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from protocol.errors import OperatorError
from sfnode.http_guard import Strangers, is_name_of_ours
from sfnode.status import Status
from sfnode.unexpected_errors import Slips

METRICS_ADDRESS = "127.0.0.1:9464"  # Prometheus' list gives this port to exporters without one of their own
_REQUEST_BYTES_MAX = 8_192
_ANSWER_S = 10.0  # Prometheus waits as long by default
_AT_ONCE_MAX = 8
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """Describes one exported figure: its Prometheus type, name and help text.

    Attributes:
        value: reads the figure from a status; None means that this node lacks the figure, and omits the line.
    """

    family: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str
    value: Callable[[Status], float | None]


_gauge, _counter = partial(Metric, GaugeMetricFamily), partial(Metric, CounterMetricFamily)
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
        "Of a finished node: neighbours that do not hold the same updates, but for want of room in the author table.",
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
        lambda s: None if s.life.is_rewarded else s.training.loss,
    ),
    _gauge(
        "sfnode_reward_ratio",
        "Mean reward, from 0 to 1, of the answers that the last estimate sampled.",
        lambda s: s.training.reward,
    ),
    _gauge(
        "sfnode_chance_ratio",
        "How likely, from 0 to 1, a token of the right answers was that the last estimate's rows name.",
        lambda s: s.training.chance,
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
        "sfnode_forward_rows_total",
        "Rows that went forward through the model for estimates; those of skipped steps are left out.",
        lambda s: s.training.forward_rows,
    ),
    _counter(
        "sfnode_worker_restarts_total", "Times that the worker was started anew.", lambda s: s.training.worker_restarts
    ),
    _counter("sfnode_slips_total", "Exceptions that nobody has foreseen.", lambda s: s.life.slips.count),
    _counter("sfnode_received_bytes_total", "Frames of the wire protocol that came.", lambda s: s.network.bytes_in),
    _counter("sfnode_sent_bytes_total", "Frames of the wire protocol that went out.", lambda s: s.network.bytes_out),
    _counter(
        "sfnode_refused_streams_total", "Streams of peers that had too many open.", lambda s: s.network.streams_refused
    ),
    _counter("sfnode_failed_streams_total", "Streams that an exception ended.", lambda s: s.network.streams_failed),
    _counter("sfnode_rejected_messages_total", "Messages that were provably wrong.", lambda s: s.node.rejected),
    _counter("sfnode_ignored_messages_total", "Updates, statements, attestations of no use.", lambda s: s.node.ignored),
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
                yield metric.family(metric.name, metric.text, value=float(value))


def exposition(status: Status) -> bytes:
    """Return ``status`` in Prometheus' text format 0.0.4."""
    return generate_latest(_Figures(status))


def parse_metrics_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT into IP address and port. OperatorError if it is none."""
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    with suppress(ValueError):
        if is_port:
            return str(ipaddress.ip_address(host)), int(port)
    raise OperatorError(
        f"--metrics {text!r} is not an IP address and a port: write 127.0.0.1:PORT, or 0.0.0.0:PORT in a container"
    )


async def metrics_socket(address: str) -> trio.SocketListener:
    """Open a listener at ``address``. OperatorError if the address is invalid or in use."""
    host, port = parse_metrics_address(address)
    try:
        (listener,) = await trio.open_tcp_listeners(port, host=host, backlog=_AT_ONCE_MAX)
    except OSError as error:
        reason = error.strerror or error
        text = f"the metrics cannot be served at {address}: {reason}. Name another port with --metrics 127.0.0.1:PORT"
        raise OperatorError(text) from None
    return listener


async def serve_metrics(last_status: Callable[[], Status], listener: trio.SocketListener, slips: Slips) -> None:
    """Serve what ``last_status`` returns, until cancelled. It may raise OperatorError, and runs in a thread."""
    is_open = not ipaddress.ip_address(listener.socket.getsockname()[0]).is_loopback
    server = _Server(last_status, slips, is_open)
    await trio.serve_listeners(server.answer, [listener])


class _Server:
    """Answers one request on each connection, and closes it."""

    def __init__(self, last_status: Callable[[], Status], slips: Slips, is_open: bool) -> None:
        self._last_status, self._slips = last_status, slips
        self._is_open = is_open  # to other machines, which know this one by a name that it does not know
        self._strangers = Strangers()
        self._limiter = trio.CapacityLimiter(_AT_ONCE_MAX)

    async def answer(self, stream: trio.SocketStream) -> None:
        """Serve one connection; cut it off if it is slow or exceeds the limit."""
        with self._slips.contained("a request for the metrics", endings=()), suppress(trio.BrokenResourceError):
            async with stream:
                request = None
                with suppress(OSError), self._strangers.place(stream.socket.getpeername()[0]):  # OSError: it was reset
                    request = await _request(stream)
                if request is not None:
                    await self._reply(stream, *request)

    async def _reply(self, stream: trio.SocketStream, line: bytes, host: str) -> None:
        """Answer within `_ANSWER_S`; send nothing if `_AT_ONCE_MAX` answers are under way."""
        with suppress(trio.WouldBlock), trio.move_on_after(_ANSWER_S):
            self._limiter.acquire_on_behalf_of_nowait(stream)
            try:
                await stream.send_all(await self._response_to(line, host))
            finally:
                self._limiter.release_on_behalf_of(stream)

    async def _response_to(self, line: bytes, host: str) -> bytes:
        if not (self._is_open or is_name_of_ours(host)):
            text = b"the metrics are not served under this name: ask 127.0.0.1 or localhost\n"
            return _response("421 Misdirected Request", text)
        match line.split(b" "):
            case [b"HEAD", *rest]:
                as_get = await self._response_to(b" ".join((b"GET", *rest)), host)
                return as_get[: as_get.index(b"\r\n\r\n") + 4]
            case [b"GET", target, _] if target.partition(b"?")[0] == b"/metrics":  # Prometheus adds its `params`
                return await trio.to_thread.run_sync(_figures, self._last_status)
            case [b"GET", _, _]:
                return _response("404 Not Found", b"the metrics are at /metrics\n")
            case [_, _, _]:
                return _response("405 Method Not Allowed", b"GET /metrics\n", "Allow: GET, HEAD")
        return _response("400 Bad Request", b"GET /metrics\n")


async def _request(stream: trio.SocketStream) -> tuple[bytes, str]:
    """Read a whole request; return its first line and its Host header, which is empty unless there is exactly one.

    The first line is empty if the request is too long or breaks off.
    """
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some(_REQUEST_BYTES_MAX)
        received += part
        if not part or len(received) > _REQUEST_BYTES_MAX:
            return b"", "localhost"
    line, *headers = received.partition(b"\r\n\r\n")[0].split(b"\r\n")
    named = [header.partition(b":") for header in headers]
    hosts = [value.strip().decode("latin-1") for name, _, value in named if name.strip().lower() == b"host"]
    return line, hosts[0] if len(hosts) == 1 else ""


def _figures(last_status: Callable[[], Status]) -> bytes:
    try:
        return _response("200 OK", exposition(last_status()))
    except OperatorError as error:  # the node has just started, or hangs: Prometheus shows it as down
        return _response("503 Service Unavailable", f"{error}\n".encode())


def _response(status: str, body: bytes, *more: str) -> bytes:
    sizes = (f"Content-Type: {_TEXT}", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((f"HTTP/1.1 {status}", *sizes, *more, "", "")).encode() + body
