"""The limit of the upload: it holds for all peers together, and files leave half of it to all else."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from protocol.framing import frame
from protocol.limits import PART_BYTES_MAX
from protocol.wire import FileRequest, PeerId, Ping, encode
from sfnode.network.network_config import Timings
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_server import serve_files
from sfnode.network.transport.link import Link
from tests.support.network_nodes import Memory


class SinkLink(Link):
    """Takes every byte at once."""

    def __init__(self) -> None:
        self.peer = PeerId("somebody")

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("rate", "least_s", "most_s"), [(0, 0, 0.1), (100_000, 15, 20)])
async def test_channel__upload_limit__holds_for_all_peers_together(
    autojump_clock: trio.testing.MockClock, rate: int, least_s: float, most_s: float
) -> None:
    """Two megabytes in all; the first half megabyte is the burst."""
    total = Traffic(upload_bytes_per_s=rate)
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            channel = Channel(SinkLink(), Timings(), total)
            for _ in range(10):
                nursery.start_soon(channel.write, bytes(100_000), 1)
    assert least_s <= trio.current_time() - started_s <= most_s
    assert total.bytes_out == 2_000_000


class GreedyLink(SinkLink):
    """Asks for the same part again and again."""

    async def receive_some(self, bytes_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return frame(encode(FileRequest(sha256=bytes(32), offset=0)))


async def test_files__seven_are_downloaded_under_a_limit__hello_does_not_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each stream once had a part booked before every hello, which then came after more than HELLO_S."""
    total, file = Traffic(upload_bytes_per_s=20_000), Memory(bytes(PART_BYTES_MAX))
    async with trio.open_nursery() as nursery:
        for _ in range(7):
            nursery.start_soon(serve_files, Channel(GreedyLink(), Timings(), total), b"", lambda _: file)
        await trio.sleep(60.0)
        asked_s = trio.current_time()
        await Channel(SinkLink(), Timings(), total).write(bytes(1_000), 1)
        assert trio.current_time() - asked_s < 1.0
        files_bytes = total.bytes_out - 1_000
        assert 8 * PART_BYTES_MAX + 55 * 10_000 < files_bytes < 8 * PART_BYTES_MAX + 65 * 10_000
        nursery.cancel_scope.cancel()


async def test_hello__flood_is_larger_than_the_limit__does_not_wait_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It came after HELLO_S, again and again, and the node that was dialled banned this one for a day."""
    total = Traffic(upload_bytes_per_s=32_000)
    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(Channel(SinkLink(), Timings(), total).write, bytes(65_536), 1)
        await trio.testing.wait_all_tasks_blocked()
        asked_s = trio.current_time()
        await Channel(SinkLink(), Timings(), total).send_now(Ping(nonce=1))
        assert trio.current_time() - asked_s < 1.0
    assert total.bytes_out > 12 * 65_536, "and counts"


async def test_channel__neighbours_that_leave_before_their_turn__leave_no_debt_to_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What was booked for each of them, and never sent, kept all others waiting: for half an hour after these."""
    total = Traffic(upload_bytes_per_s=20_000)
    await Channel(SinkLink(), Timings(), total).write(bytes(8 * PART_BYTES_MAX), 1)  # the burst
    for _ in range(600):
        with trio.move_on_after(0.1):
            await Channel(SinkLink(), Timings(), total).write(bytes(65_536), 1)
    asked_s = trio.current_time()
    await Channel(SinkLink(), Timings(), total).write(bytes(1_000), 1)
    assert trio.current_time() - asked_s < 1.0
