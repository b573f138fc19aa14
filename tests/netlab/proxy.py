"""A TCP proxy that does to a connection what bad networks do: this kernel's netem is not to be had everywhere.

    python -m tests.netlab.proxy --listen 0.0.0.0:5001 --to 10.10.0.1:4001 --fault slice

One fault at a time, in both directions; the name of another on the standard input changes it for connections old and
new. ``none`` passes everything on. `reset` cuts each connection after some bytes, which is what loss comes to over TCP.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
from dataclasses import dataclass, field

import click
import trio

_READ_BYTES = 65_536
_DELAY_S = 0.15  # one way
_THROTTLE_BYTES_PER_S = 20_000
_RESET_AFTER_BYTES = (2_000, 60_000)
_SLICE_BYTES = 7
_CORRUPT_EVERY_BYTES = 20_000
_NO_LINGER = struct.pack("ii", 1, 0)  # close sends RST
FAULTS = ("none", "delay", "reset", "throttle", "slice", "corrupt", "stall")


@dataclass
class Proxy:
    """Passes connections on to ``target`` under the present fault."""

    target: tuple[str, int]
    fault: str = "none"
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    changed: trio.Event = field(default_factory=trio.Event)
    reset_after_bytes: tuple[int, int] = _RESET_AFTER_BYTES
    connections: int = 0
    hits: int = 0  # connections cut, bytes turned, reads held up

    def set_fault(self, fault: str) -> None:
        """From now on, for every connection."""
        if fault not in FAULTS:
            raise ValueError(f"no fault {fault!r}; there are {', '.join(FAULTS)}")
        self.fault = fault
        self.changed.set()
        self.changed = trio.Event()

    async def serve(self, near: trio.SocketStream) -> None:
        """One connection, until either side or the fault ends it."""
        self.connections += 1
        try:
            far = await trio.open_tcp_stream(*self.target)
        except OSError:
            await near.aclose()
            return
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self.pump, near, far, nursery.cancel_scope)
            nursery.start_soon(self.pump, far, near, nursery.cancel_scope)

    async def pump(self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, scope: trio.CancelScope) -> None:
        """One direction of a connection; at its end ``scope``, which holds both, is cancelled."""
        left = self.chance.randint(*self.reset_after_bytes)
        try:
            while data := await source.receive_some(_READ_BYTES):
                left -= len(data)
                if self.fault == "reset" and left < 0:
                    self.hits += 1
                    _without_goodbye(source, sink)
                    scope.cancel()
                    return
                await self._pass(data, sink)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await sink.aclose()
        scope.cancel()

    async def _pass(self, data: bytes, sink: trio.abc.SendStream) -> None:
        while self.fault == "stall":
            self.hits += 1
            await self.changed.wait()
        match self.fault:
            case "delay":
                self.hits += 1
                await trio.sleep(_DELAY_S)
            case "throttle":
                self.hits += 1
                await trio.sleep(len(data) / _THROTTLE_BYTES_PER_S)
            case "corrupt":
                data = self._corrupt(data)
            case "slice":
                self.hits += 1
                await _send_sliced(data, sink)
                return
        await sink.send_all(data)

    def _corrupt(self, data: bytes) -> bytes:
        if self.chance.random() >= len(data) / _CORRUPT_EVERY_BYTES:
            return data
        self.hits += 1
        turned = bytearray(data)
        turned[self.chance.randrange(len(turned))] ^= 1 << self.chance.randrange(8)
        return bytes(turned)


def _without_goodbye(*streams: object) -> None:
    """Closing them sends RST and throws away what is on its way."""
    for stream in streams:
        if isinstance(stream, trio.SocketStream):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


async def _send_sliced(data: bytes, sink: trio.abc.SendStream) -> None:
    """In pieces that end in the middle of everything."""
    for start in range(0, len(data), _SLICE_BYTES):
        await sink.send_all(data[start : start + _SLICE_BYTES])
        await trio.lowlevel.checkpoint()


async def _obey(proxy: Proxy) -> None:
    """Change the fault with each line; each is answered with what the proxy has done so far."""
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                proxy.set_fault(line.decode("ascii"))
                sys.stdout.write(f"{proxy.fault} {proxy.connections} {proxy.hits}\n")
                sys.stdout.flush()


async def run_proxy(listen: tuple[str, int], proxy: Proxy) -> None:
    """Serve until cancelled."""
    await trio.serve_tcp(proxy.serve, listen[1], host=listen[0])


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def _run(listen: str, target: str, fault: str) -> None:
    proxy = Proxy(target=_host_and_port(target))
    proxy.set_fault(fault)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_proxy, _host_and_port(listen), proxy)
        nursery.start_soon(_obey, proxy)


@click.command()
@click.option("--listen", required=True, help="HOST:PORT")
@click.option("--to", "target", required=True, help="HOST:PORT")
@click.option("--fault", type=click.Choice(FAULTS), default="none", show_default=True)
def main(listen: str, target: str, fault: str) -> None:
    """Pass connections on, badly."""
    trio.run(_run, listen, target, fault)


if __name__ == "__main__":
    main()
