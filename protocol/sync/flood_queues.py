"""The flood's queues: which records still have to go to which neighbour (SPEC 8.3)."""

from collections.abc import Callable

from protocol import limits, timings
from protocol.crypto import SIGNATURE_BYTES
from protocol.sync.anti_entropy import record_frames
from protocol.wire import PeerId, Records


class PushQueue:
    """Holds the records to push to one neighbour, oldest first. A full queue leaves new ones to anti-entropy."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, bytes] = {}  # by payload
        self._flushed_ms = -timings.FLUSH_INTERVAL_MS

    def push(self, record: bytes) -> None:
        if len(self._waiting) < limits.PUSH_QUEUE_RECORDS_MAX:
            self._waiting[record[:-SIGNATURE_BYTES]] = record

    def mark_known(self, record: bytes) -> None:
        """Drop a record that the neighbour has just shown to hold."""
        self._waiting.pop(record[:-SIGNATURE_BYTES], None)

    def keep(self, is_useful: Callable[[bytes], bool]) -> None:
        """Keep only the records that are still useful."""
        self._waiting = {payload: record for payload, record in self._waiting.items() if is_useful(record)}

    def rest_ms(self, now_ms: int, interval_ms: int) -> int | None:
        """Return how much longer the queued records have to wait, at least 0; None when nothing waits."""
        return max(0, self._flushed_ms + interval_ms - now_ms) if self._waiting else None

    def flush(self, now_ms: int, record_bytes: int, interval_ms: int = timings.FLUSH_INTERVAL_MS) -> list[Records]:
        """Return all queued records in messages, but at most once in each interval, so that frames are full."""
        if self.rest_ms(now_ms, interval_ms) != 0:
            return []
        self._flushed_ms = now_ms
        records = list(self._waiting.values())
        self._waiting = {}
        return [Records(request=0, data=data) for data in record_frames(records, record_bytes)]


class Flood:
    """Holds the queues of all neighbours and decides how long to gather records for one frame.

    An update that comes alone goes at once. On a busy machine the frames are the main cost. So the interval doubles
    with each late tick, up to FLUSH_INTERVAL_MS_MAX, and falls again with each tick in time.
    """

    def __init__(self, record_bytes: int) -> None:
        self.interval_ms = timings.FLUSH_INTERVAL_MS
        self._record_bytes = record_bytes
        self._queues: dict[PeerId, PushQueue] = {}

    def adapt(self, late_ms: int) -> None:
        """Lengthen the interval after a tick that came late, shorten it after a tick in time."""
        if late_ms > timings.LATE_MS_MAX:
            self.interval_ms = min(2 * self.interval_ms, timings.FLUSH_INTERVAL_MS_MAX)
        else:
            self.interval_ms = max(self.interval_ms - timings.FLUSH_INTERVAL_MS // 2, timings.FLUSH_INTERVAL_MS)

    def rest_ms(self, now_ms: int) -> int:
        """Return how long until the next flush is due, REST_MS_MAX when nothing waits."""
        rests = (queue.rest_ms(now_ms, self.interval_ms) for queue in self._queues.values())
        return min((rest for rest in rests if rest is not None), default=timings.REST_MS_MAX)

    def open(self, peer: PeerId) -> None:
        self._queues[peer] = PushQueue()

    def close(self, peer: PeerId) -> None:
        self._queues.pop(peer, None)

    def push(self, record: bytes, *, source: PeerId | None) -> None:
        """Queue a new record for every neighbour but the one it came from."""
        for peer, queue in self._queues.items():
            if peer != source:
                queue.push(record)

    def mark_known(self, peer: PeerId, record: bytes) -> None:
        """Drop the record from the queue of ``peer``, which sent it itself."""
        if peer in self._queues:
            self._queues[peer].mark_known(record)

    def keep(self, is_useful: Callable[[bytes], bool]) -> None:
        for queue in self._queues.values():
            queue.keep(is_useful)

    def flush(self, now_ms: int) -> list[tuple[PeerId, Records]]:
        """Return the messages to send now, with their receivers."""
        return [
            (peer, message)
            for peer, queue in self._queues.items()
            for message in queue.flush(now_ms, self._record_bytes, self.interval_ms)
        ]
