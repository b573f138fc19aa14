"""A neighbour of many nodes that signs updates for some authors, gives each to one node, and notes when others send it.

    python -m tests.netlab.probe --run FILE --target MULTIADDR ... --rate 50 --seconds 60

It runs no node: it holds nothing and asks nothing. The last line of its output is one JSON document.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import trio

from benchmarks.sample_runs import scalars_of, signer
from protocol.errors import Reject
from protocol.ledger.envelope import EnvelopeCodec
from protocol.limits import RECORDS_PER_FRAME_MAX
from protocol.run.manifest import Manifest
from protocol.wire import Hello, Ping, Pong, Records
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import DialError, Host
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.storage.data_directory import decode_run_file

_REDIAL_S = 1.0
_LINGER_S = 5.0  # after the last update, for the slowest of its ways
_SIGNED_AHEAD_MAX = 20_000  # so that signing takes no time from the nodes while they are measured
_ROUND_S = 0.05  # at most so long are updates gathered that are due


@dataclass(slots=True)
class Probe:
    """What is known of every update that was given to somebody."""

    manifest: Manifest
    targets: tuple[str, ...]
    authors: int
    channels: dict[str, Channel] = field(default_factory=dict)
    given_s: dict[bytes, float] = field(default_factory=dict)
    arrived_s: dict[bytes, dict[str, float]] = field(default_factory=dict)
    given: int = 0
    chance: random.Random = field(default_factory=random.Random)
    ahead: deque[bytes] = field(default_factory=deque)

    async def stay_connected(self, host: Host, target: str) -> None:
        """One session after the other with a node that may come and go."""
        while True:
            with suppress(DialError, LinkBrokenError, RefusedError, Reject):
                link = await host.dial(parse_address(target))
                try:
                    await self._talk(Channel(link, Timings(), Traffic()), target)
                finally:
                    self.channels.pop(target, None)
                    await link.aclose()
            await trio.sleep(_REDIAL_S)

    async def _talk(self, channel: Channel, target: str) -> None:
        await exchange_hello(channel, self._hello())
        self.channels[target] = channel
        while (message := await channel.receive_untrusted()) is not None:
            if isinstance(message, Ping):
                await channel.send_now(Pong(nonce=message.nonce))
            elif isinstance(message, Records):
                self._note(message.data, target)

    def _hello(self) -> Hello:
        return own_hello(run_id=self.manifest.run_id, agent="probe", listen=(), head_step=0)

    def _note(self, data: bytes, target: str) -> None:
        now_s, size = trio.current_time(), EnvelopeCodec(self.manifest).record_bytes
        for start in range(0, len(data), size):
            arrivals = self.arrived_s.get(data[start : start + size])
            if arrivals is not None:
                arrivals.setdefault(target, now_s)

    def sign_ahead(self, count: int) -> None:
        """Sign the first updates before the first is given."""
        self.ahead.extend(self._signed(number) for number in range(min(count, _SIGNED_AHEAD_MAX)))

    def _signed(self, count: int) -> bytes:
        step, number = divmod(count, self.authors)
        return EnvelopeCodec(self.manifest).seal(signer(number), step, scalars_of(self.manifest, self.chance)).record

    async def give(self, *, rate: float, seconds: float, is_watching: bool) -> None:
        """``rate`` updates a second, authors in turn, each to one node; as long as nodes are there to take them."""
        started_s = trio.current_time()
        while self.given < int(seconds * rate):
            due = min(int((trio.current_time() - started_s) * rate), int(seconds * rate))
            await self._give_to_some(due - self.given, is_watched=is_watching)
            if trio.current_time() > started_s + 1.1 * seconds:
                return
            await trio.sleep(min(1.0 / rate, _ROUND_S))

    async def _give_to_some(self, count: int, *, is_watched: bool) -> None:
        parts: dict[str, list[bytes]] = {}
        for number in range(self.given, self.given + count if self.channels else 0):
            record = self.ahead.popleft() if self.ahead else self._signed(number)
            parts.setdefault(self.chance.choice(sorted(self.channels)), []).append(record)
        for target, records in parts.items():
            for record in records if is_watched else ():
                self.given_s[record] = trio.current_time()
                self.arrived_s[record] = {target: trio.current_time()}
            with suppress(LinkBrokenError, KeyError):
                for start in range(0, len(records), RECORDS_PER_FRAME_MAX):  # one frame, but after a pause
                    part = records[start : start + RECORDS_PER_FRAME_MAX]
                    await self.channels[target].send_now(Records(request=0, data=b"".join(part)))
            self.given += len(records)

    def result(self) -> dict[str, object]:
        """Seconds until all of the nodes had it, for each update that reached all; and of each node by itself."""
        all_s, each_s, incomplete = [], [], 0
        for record, given_s in self.given_s.items():
            arrivals = [arrived_s - given_s for arrived_s in self.arrived_s[record].values()]
            each_s += arrivals
            if len(arrivals) == len(self.targets):
                all_s.append(max(arrivals))
            else:
                incomplete += 1
        return {"given": self.given, "incomplete": incomplete, "all_s": all_s, "each_s": each_s}


async def _hang_up(link: Link) -> None:
    await link.aclose()


async def _run(probe: Probe, rate: float, seconds: float, is_watching: bool, is_held: bool) -> None:
    probe.sign_ahead(int(rate * seconds))
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=_hang_up)
    async with host.running(()), trio.open_nursery() as nursery:
        for target in probe.targets:
            nursery.start_soon(probe.stay_connected, host, target)
        while len(probe.channels) < len(probe.targets):
            await trio.sleep(0.05)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if is_held:
            await trio.to_thread.run_sync(sys.stdin.readline)
        await probe.give(rate=rate, seconds=seconds, is_watching=is_watching)
        await trio.sleep(_LINGER_S if is_watching else _ROUND_S)
        sys.stdout.write(json.dumps(probe.result()) + "\n")
        sys.stdout.flush()
        if is_held:  # what busy nodes have not read yet would go with the connection
            await trio.to_thread.run_sync(sys.stdin.readline)
        nursery.cancel_scope.cancel()


@click.command()
@click.option("--run", "run_file", type=click.Path(path_type=Path), required=True)
@click.option("--target", "targets", multiple=True, required=True)
@click.option("--authors", default=10, show_default=True)
@click.option("--rate", default=1.0, show_default=True, help="Updates per second, all authors together.")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--watch", is_flag=True, help="Note when each target sends each update.")
@click.option("--hold", is_flag=True, help="Begin when a line comes on the standard input, and leave when it ends.")
def main(
    run_file: Path, targets: tuple[str, ...], authors: int, rate: float, seconds: float, watch: bool, hold: bool
) -> None:
    """Give updates to nodes."""
    probe = Probe(manifest=decode_run_file(run_file).manifest, targets=targets, authors=authors)
    trio.run(_run, probe, rate, seconds, watch, hold)


if __name__ == "__main__":
    main()
