"""Places for pieces of a model, held by neighbours that take as little as they can."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from typing import Final

import trio

from protocol.limits import MODEL_PIECE_BYTES
from protocol.wire import FileRequest, PeerId
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.sessions.bandwidth_limit import Pace, Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Wanted
from sfnode.network.sessions.file_server import FILES_PROTOCOL, ServedRun
from sfnode.node.piece_fetcher import PieceFetcher
from tests.attacks.cheap_frames import CUT
from tests.attacks.file_givers import finder
from tests.attacks.outcome import A_NEW_NODE, Outcome
from tests.support.network_nodes import LOOPBACK, MANIFEST, RUN_ID, Node, network_of, start, until
from tests.support.patience import within

_HOLDERS: Final = 4
_PIECES: Final = 16
_ASK_S: Final = 6.0  # two seconds less than a place may be idle
_AGAIN_S: Final = 1.0
_BOUND_S: Final = 30.0
_NEVER_S: Final = 60.0
_LISTENING: Final = NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)


def held_pieces(_is_short: bool) -> Outcome:
    """Four neighbours hold all eight places of a node that gives pieces, with a question every six seconds."""
    before_s, _ = trio.run(_taken_s, 0)
    during_s, asked = trio.run(_taken_s, _HOLDERS)
    return Outcome(
        before=_in_words(before_s),
        during=_in_words(during_s),
        after=A_NEW_NODE,
        attacker=f"{asked * 100 / 1e3:.1f} kB",
        bound=f"a newcomer has {_PIECES} MiB in {_BOUND_S:.0f} s",
        is_held=during_s is not None and during_s <= _BOUND_S,
    )


async def _taken_s(holders: int) -> tuple[float | None, int]:
    """After how long a newcomer has all pieces, None for never; and how often the attackers have asked."""
    pieces = [secrets.token_bytes(MODEL_PIECE_BYTES) for _ in range(_PIECES)]
    hashes = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    run = ServedRun(
        run_id=RUN_ID,
        manifest_bytes=MANIFEST,
        find_piece=finder(dict(zip(hashes, pieces, strict=True))),
        pieces_bytes_per_s=float(4 << 20),
    )
    asked = [0]
    async with trio.open_nursery() as nursery:
        victim = await start(nursery, network_of(1, run, _LISTENING))
        for number in range(holders):
            holder = await _neighbour_of(victim, nursery, 10 + number)
            for _ in range(bounds.PIECE_STREAMS_PER_NEIGHBOUR_MAX):
                nursery.start_soon(_hold_for_ever, holder, victim.peer, bytes.fromhex(hashes[number]), asked)
        await until(lambda: asked[0] >= 2 * holders)
        newcomer = await _neighbour_of(victim, nursery, 9)
        began_s, found_s = trio.current_time(), None
        with suppress(trio.TooSlowError):
            await within(_NEVER_S, lambda: _take(newcomer, hashes))
            found_s = trio.current_time() - began_s
        nursery.cancel_scope.cancel()
    return found_s, asked[0]


async def _neighbour_of(victim: Node, nursery: trio.Nursery, number: int) -> Node:
    run = ServedRun(run_id=RUN_ID, manifest_bytes=MANIFEST)
    node = await start(nursery, network_of(number, run, NetworkConfig(bootstrap=victim.addresses)))
    await until(node.connected)
    return node


async def _take(node: Node, hashes: list[str]) -> None:
    async def keep(_number: int, _piece: bytes, _giver: PeerId) -> None:
        """Only the time counts."""

    fetcher = PieceFetcher(node.network.neighbour_files, Pace(0.0))
    await fetcher.fetch(len(hashes), lambda number: Wanted.piece(hashes[number], MODEL_PIECE_BYTES), keep)


async def _hold_for_ever(holder: Node, victim: PeerId, sha256: bytes, asked: list[int]) -> None:
    """One place, taken anew whenever it is lost."""
    while True:
        with suppress(*CUT):
            await _hold(holder, victim, sha256, asked)
        await trio.sleep(_AGAIN_S)


async def _hold(holder: Node, victim: PeerId, sha256: bytes, asked: list[int]) -> None:
    session = holder.network.sessions.get(victim)
    if session is None:
        return
    link = await holder.network._host.open_beside(session.channel.link, FILES_PROTOCOL)
    if link is None:
        return
    channel = Channel(link, Timings(), Traffic())
    channel.trust()
    try:
        while True:
            asked[0] += 1
            await channel.send_now(FileRequest(sha256=sha256, offset=MODEL_PIECE_BYTES - 1))
            if await channel.receive_untrusted() is None:
                return
            await trio.sleep(_ASK_S)
    finally:
        await link.reset()


def _in_words(seconds: float | None) -> str:
    return f"nothing whole in {_NEVER_S:.0f} s" if seconds is None else f"{_PIECES} MiB in {seconds:.1f} s"
