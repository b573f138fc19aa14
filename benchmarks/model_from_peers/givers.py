"""The neighbours of the one who fetches, each a process of its own: honest, lying, stalling, or a plain copy.

    python -m benchmarks.model_from_peers.givers KIND FOLDER NUMBER UPDATES_PER_S BYTES_PER_S

Prints its address, and ends when its standard input closes. While it gives, an honest one also sends updates, each
frame with the time at which it left.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from protocol.run import ModelSpec, Sharing
from protocol.wire import Records
from sfnode.model_files import ModelFolder, PieceIndex, pieces, verify
from sfnode.network import Host, Link, LinkBrokenError, Network, NetworkConfig, ServedRun, policy
from sfnode.node import open_inbox

RUN_ID: Final = bytes(range(32))
LISTEN: Final = policy.parse_listen("/ip4/127.0.0.1/tcp/0")
WEIGHTS: Final = "model.safetensors"
RECORD_BYTES: Final = 110
HONEST, LIAR, STALLER, COPY = "honest", "liar", "staller", "copy"
_FLUSH_S: Final = 0.05  # as the flood's
_CHUNK_BYTES: Final = 1 << 20
_STALLED_BYTES_PER_S: Final = 1e-3  # a few parts come at once, and then none


def model_of(folder: Path) -> ModelSpec:
    """The manifest's entry; nobody looks at what the weights are."""
    found = ModelFolder(path=folder, id=f"local:{folder.name}", revision="")
    return verify.describe_files(found, "0" * 64, Sharing.PEERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """Zeros, as many as the piece has bytes."""

    total: int

    def read(self, offset: int, bytes_max: int) -> bytes:
        """As of a file."""
        return bytes(min(bytes_max, self.total - offset))


def _index_of(folder: Path) -> PieceIndex:
    index = PieceIndex()
    for file in model_of(folder).files:
        hashes = pieces.hashes_of(folder / file.name, file)
        assert hashes is not None
        index.add(folder / file.name, file, hashes)
    return index


def _lie(index: PieceIndex, sha256: str) -> Lie | None:
    found = index.find(sha256)
    return None if found is None else Lie(total=found.total)


async def _give(kind: str, folder: Path, number: int, updates_per_s: int, bytes_per_s: int) -> None:
    index = _index_of(folder)
    inbox, _unread = open_inbox()
    network = Network(
        config=NetworkConfig(listen=(LISTEN,), neighbours_fixed=True),
        identity_seed=bytes(31) + bytes([number]),
        run=ServedRun(
            run_id=RUN_ID,
            manifest_bytes=b"manifest",
            record_bytes=RECORD_BYTES,
            find_piece=partial(_lie, index) if kind == LIAR else index.find,
            pieces_bytes_per_s=_STALLED_BYTES_PER_S if kind == STALLER else bytes_per_s,
        ),
        inbox=inbox,
    )
    async with trio.open_nursery() as nursery:
        (address, *_) = await nursery.start(network.run)
        _say(str(address))
        nursery.start_soon(_send_updates, network, updates_per_s)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def _send_updates(network: Network, updates_per_s: int) -> None:
    count = round(updates_per_s * _FLUSH_S)
    while count:
        data = time.monotonic_ns().to_bytes(8, "big") + bytes(count * RECORD_BYTES - 8)
        for neighbour in network.neighbours():
            network.sessions.send(neighbour.peer, Records(request=0, data=data))
        await trio.sleep(_FLUSH_S)


async def _copy(folder: Path, number: int) -> None:
    """The file as it is, as fast as Noise and Yamux take it."""

    async def serve(link: Link) -> None:
        link.introduced()  # else it is given no faster than to a stranger
        try:
            with (folder / WEIGHTS).open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    await link.send_all(data)
            await link.send_eof()
        except LinkBrokenError:
            pass
        await trio.sleep_forever()

    host = Host(identity_seed=bytes(31) + bytes([number]), on_inbound=serve)
    async with host.running((LISTEN,)):
        _say(f"{host.addresses[0].transport}/p2p/{host.peer}")
        await trio.to_thread.run_sync(sys.stdin.read)


def _say(address: str) -> None:
    sys.stdout.write(address + "\n")
    sys.stdout.flush()


def main(kind: str, folder: str, number: str, updates_per_s: str, bytes_per_s: str) -> None:
    """Entry point of the process."""
    if kind == COPY:
        trio.run(_copy, Path(folder), int(number))
    else:
        trio.run(_give, kind, Path(folder), int(number), int(updates_per_s), int(bytes_per_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
