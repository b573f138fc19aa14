"""A model of 270 MB from three neighbours on this machine, of which one lies and one stalls, beside the lower limit.

    python -m benchmarks.model_from_peers --json

The lower limit: the file's bytes, and the time in which one process copies it to another over Noise and Yamux. Then
the updates that come over the same connection while one neighbour gives, and while it does not. Only files move: the
weights are random bytes.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import trio

from benchmarks.measures import report, say
from benchmarks.model_from_peers.givers import COPY, HONEST, LIAR, RECORD_BYTES, RUN_ID, STALLER, WEIGHTS, model_of
from protocol.events import Event, MessageArrived, PeerJoined
from protocol.wire import Records
from sfnode.network import Host, Link, Network, NetworkConfig, Pace, ServedRun, policy
from sfnode.node import ModelFetcher, open_inbox
from sfnode.reporter import Reporter

_UPDATES_PER_S: Final = 1_000  # of 110 bytes; a neighbour may push 2,000
_BYTES_PER_S: Final = 16 << 20  # four times what a node gives unless it is told otherwise
_READ_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who gives; an honest one sends so many updates meanwhile, and gives no faster than this (0: as it can)."""

    kinds: tuple[str, ...]
    updates_per_s: int = 0
    bytes_per_s: int = 0


class Fetching:
    """One node that fetches: its network, and what comes over it meanwhile."""

    def __init__(self, addresses: list[str]) -> None:
        inbox, self._unread = open_inbox()
        self.network = Network(
            config=NetworkConfig(bootstrap=tuple(map(policy.parse_bootstrap, addresses)), neighbours_fixed=True),
            identity_seed=bytes(30) + b"\x01\x00",
            run=ServedRun(run_id=RUN_ID, manifest_bytes=b"manifest", record_bytes=RECORD_BYTES),
            inbox=inbox,
        )
        self.delays_ms: list[float] = []
        self.updates = 0
        self._met = 0
        self._joined = trio.Event()

    async def meet(self, count: int) -> None:
        """Wait until so many neighbours are there."""
        while self._met < count:
            await self._joined.wait()

    async def watch(self) -> None:
        """Take in what the node would, and note how old the updates are."""
        async for event in self._unread:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, PeerJoined):
            self._met += 1
            self._joined.set()
            self._joined = trio.Event()
        if not isinstance(event, MessageArrived):
            return
        self.network.conversation.handled(event.peer, event.message, seconds=0.0, news=0)
        if isinstance(event.message, Records):
            sent_ns = int.from_bytes(event.message.data[:8], "big")
            self.delays_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
            self.updates += len(event.message.data) // RECORD_BYTES

    def updates_since(self, seconds: float) -> dict[str, float]:
        """Per second, with their delay; begins anew."""
        delays, updates = sorted(self.delays_ms), self.updates
        self.delays_ms, self.updates = [], 0
        median, last = (delays[len(delays) // 2], delays[-1 - len(delays) // 100]) if delays else (0.0, 0.0)
        return {
            "updates_per_s": round(updates / seconds),
            "delay_ms": round(median, 1),
            "delay_p99_ms": round(last, 1),
        }


@asynccontextmanager
async def _givers(case: Case, folder: Path) -> AsyncIterator[list[str]]:
    """Their addresses, while the processes run."""
    processes, addresses = [], []
    try:
        for number, kind in enumerate(case.kinds, start=1):
            command = [sys.executable, "-m", f"{__package__}.givers", kind, str(folder), str(number)]
            process = await trio.lowlevel.open_process(
                [*command, str(case.updates_per_s), str(case.bytes_per_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            addresses.append((await process.stdout.receive_some()).decode().strip())
        yield addresses
    finally:
        for process in processes:
            process.kill()


async def _fetch(case: Case, folder: Path, target: Path, quiet_s: float) -> dict[str, float]:
    spec = model_of(folder)
    size = sum(file.bytes for file in spec.files)
    async with _givers(case, folder) as addresses, trio.open_nursery() as nursery:
        fetching = Fetching(addresses)
        await nursery.start(fetching.network.run)
        nursery.start_soon(fetching.watch)
        await fetching.meet(len(case.kinds))
        await trio.sleep(quiet_s if case.updates_per_s else 0.0)
        before = fetching.updates_since(quiet_s)
        bytes_before, started_s, cpu_s = fetching.network.statistics().bytes_in, time.monotonic(), time.process_time()
        fetcher = ModelFetcher(
            spec, fetching.network.neighbour_files, Pace(0.0), Reporter(is_json=True, stream=io.StringIO())
        )
        await fetcher.fetch(spec.files, target)
        seconds = time.monotonic() - started_s
        received = fetching.network.statistics().bytes_in - bytes_before
        result = {
            "seconds": round(seconds, 2),
            "cpu_s": round(time.process_time() - cpu_s, 2),
            "bytes": received,
            "bytes_ratio": round(received / size, 3),
            "neighbours_left": len(fetching.network.neighbours()),
        }
        if case.updates_per_s:
            during = fetching.updates_since(seconds)
            result |= {f"quiet_{name}": value for name, value in before.items()}
            result |= {f"during_{name}": value for name, value in during.items()}
        nursery.cancel_scope.cancel()
    return result


async def _copy(folder: Path, target: Path) -> dict[str, float]:
    """The lower limit: one stream, nothing looked at, written to a file."""
    size = (folder / WEIGHTS).stat().st_size
    async with _givers(Case(kinds=(COPY,)), folder) as (address,):
        host = Host(identity_seed=bytes(30) + b"\x01\x00", on_inbound=_ignore)
        async with host.running(()):
            started_s, cpu_s, received = time.monotonic(), time.process_time(), 0
            link = await host.dial(policy.parse_address(address))
            with target.open("wb") as file:
                while received < size:
                    data = await link.receive_some(_READ_BYTES)
                    assert data, "the giver has ended"
                    file.write(data)
                    received += len(data)
            result = {
                "seconds": round(time.monotonic() - started_s, 2),
                "cpu_s": round(time.process_time() - cpu_s, 2),
                "bytes": received,
            }
            await link.aclose()
    return result


async def _ignore(link: Link) -> None:
    await link.aclose()


def _make_model(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_bytes(os.urandom(2_000_000))
    with (folder / WEIGHTS).open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))


async def measure(megabytes: int, quiet_s: float, place: Path) -> dict[str, dict[str, float]]:
    """All cases, one after the other."""
    folder = place / "model"
    _make_model(folder, megabytes)
    found: dict[str, dict[str, float]] = {}
    say("copy")
    found["copy"] = await _copy(folder, place / "copied")
    cases = {
        "one honest": Case(kinds=(HONEST,)),
        "three honest": Case(kinds=(HONEST, HONEST, HONEST)),
        "honest, liar, staller": Case(kinds=(HONEST, LIAR, STALLER)),
        "with updates": Case(kinds=(HONEST,), updates_per_s=_UPDATES_PER_S),
        "with updates, 16 MiB/s": Case(kinds=(HONEST,), updates_per_s=_UPDATES_PER_S, bytes_per_s=_BYTES_PER_S),
    }
    for number, (name, case) in enumerate(cases.items()):
        say(name)
        result = await _fetch(case, folder, place / f"fetched{number}", quiet_s)
        result["time_ratio"] = round(result["seconds"] / found["copy"]["seconds"], 2)
        found[name] = result
    return found


@click.command()
@click.option("--megabytes", default=270, show_default=True, help="Of the weights.")
@click.option("--quiet", "quiet_s", default=5.0, show_default=True, help="Seconds of updates before the fetching.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(megabytes: int, quiet_s: float, as_json: bool) -> None:
    """Time and bytes of a model that comes from neighbours."""
    with tempfile.TemporaryDirectory(prefix="sfnode-model-") as place:
        result = trio.run(measure, megabytes, quiet_s, Path(place))
    lines = [
        f"{name:26} " + "  ".join(f"{part} {value:g}" for part, value in row.items()) for name, row in result.items()
    ]
    report(result, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
