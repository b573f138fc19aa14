"""The flood's queues: which records still have to go to which neighbour (SPEC 8.3)."""

from collections.abc import Callable

from protocol import limits, timings
from protocol.crypto import SIGNATURE_BYTES
from protocol.sync.anti_entropy import record_frames
from protocol.wire import PeerId, Records


class Flood:
    """Holds for each neighbour the records to push to it, and decides how long to gather them for one frame.

    A full queue leaves new records to anti-entropy.

    An update that comes alone goes at once. On a busy machine the frames are the main cost. So the interval doubles
    with each late tick, up to FLUSH_INTERVAL_MS_MAX, and falls again with each tick in time.
    """

    def __init__(self, record_bytes: int) -> None:
        self.interval_ms = timings.FLUSH_INTERVAL_MS
        self._record_bytes = record_bytes
        self._queues: dict[PeerId, dict[bytes, bytes]] = {}  # records by payload, oldest first
        self._flushed_ms: dict[PeerId, int] = {}

    def adapt(self, late_ms: int) -> None:
        """Lengthen the interval after a tick that came late, shorten it after a tick in time."""
        if late_ms > timings.LATE_MS_MAX:
            self.interval_ms = min(2 * self.interval_ms, timings.FLUSH_INTERVAL_MS_MAX)
        else:
            self.interval_ms = max(self.interval_ms - timings.FLUSH_INTERVAL_MS // 2, timings.FLUSH_INTERVAL_MS)

    def rest_ms(self, now_ms: int) -> int:
        """Return how long until the next flush is due, REST_MS_MAX when nothing waits."""
        flushed_ms = [self._flushed_ms[peer] for peer, queue in self._queues.items() if queue]
        return max(0, min(flushed_ms) + self.interval_ms - now_ms) if flushed_ms else timings.REST_MS_MAX

    def open(self, peer: PeerId) -> None:
        self._queues[peer], self._flushed_ms[peer] = {}, -timings.FLUSH_INTERVAL_MS

    def close(self, peer: PeerId) -> None:
        self._queues.pop(peer, None)
        self._flushed_ms.pop(peer, None)

    def push(self, record: bytes, *, source: PeerId | None) -> None:
        """Queue a new record for every neighbour but the one it came from."""
        for peer, queue in self._queues.items():
            if peer != source and len(queue) < limits.PUSH_QUEUE_RECORDS_MAX:
                queue[record[:-SIGNATURE_BYTES]] = record

    def mark_known(self, peer: PeerId, record: bytes) -> None:
        """Drop the record from the queue of ``peer``, which sent it itself."""
        self._queues.get(peer, {}).pop(record[:-SIGNATURE_BYTES], None)

    def keep(self, is_useful: Callable[[bytes], bool]) -> None:
        """Keep only the records that are still useful."""
        for peer, queue in self._queues.items():
            self._queues[peer] = {payload: record for payload, record in queue.items() if is_useful(record)}

    def flush(self, now_ms: int) -> list[tuple[PeerId, Records]]:
        """Return the messages to send now, with their receivers: to each at most once in an interval."""
        messages: list[tuple[PeerId, Records]] = []
        for peer, queue in self._queues.items():
            if queue and self._flushed_ms[peer] + self.interval_ms <= now_ms:
                frames = record_frames(list(queue.values()), self._record_bytes)
                messages += [(peer, Records(request=0, data=data)) for data in frames]
                queue.clear()
                self._flushed_ms[peer] = now_ms
        return messages
