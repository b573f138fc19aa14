"""Attack: an author that always stays two rounds behind, so that everybody waits for it."""

from __future__ import annotations

import random
import secrets
import tempfile
from pathlib import Path
from typing import Final

import trio

from benchmarks.sample_runs import scalars_of
from protocol.crypto import Signer
from protocol.ledger import EnvelopeCodec
from protocol.wire import Head, Ping, Pong, Records
from sfnode.network import Channel, Host, Link, Timings, Traffic, handshake, policy
from tests.attacks.live import LiveRun, live_run
from tests.attacks.outcome import Outcome

_ROUNDS_BEHIND: Final = 2
_LOST_MAX: Final = 0.1
_TRIES: Final = 3
_PACE_MS: Final = 250  # slow enough for the steps, and not the processor, to set the pace of three nodes


def late_author(is_short: bool) -> Outcome:
    """One key stays two rounds behind all others.

    Other work on the machine slows the nodes, too, through disks and caches as well, but not three times in a row and
    then only during the attack: what was lost once is measured again.
    """
    seconds = 6.0 if is_short else 30.0
    with tempfile.TemporaryDirectory() as folder, live_run(Path(folder), pace_ms=_PACE_MS) as run:
        for _ in range(_TRIES):
            before = run.steps_per_s(seconds)
            during, sent = trio.run(_attack, run, seconds)
            after = run.steps_per_s(seconds)
            if is_held := during >= (1 - _LOST_MAX) * before:
                break
    return Outcome(
        before=f"{before:.1f} steps/s",
        during=f"{during:.1f} steps/s",
        after=f"{after:.1f} steps/s",
        attacker=f"{sent:,} bytes in {seconds:.0f} s",
        bound="a tenth of the steps lost at most",
        is_held=is_held,
    )


async def _attack(run: LiveRun, seconds: float) -> tuple[float, int]:
    """Steps per second while the author is at work, and the bytes that it has sent."""
    seed = secrets.token_bytes(32)
    host = Host(identity_seed=seed, on_inbound=_hang_up)
    traffic = Traffic()
    async with host.running(()), trio.open_nursery() as nursery:
        link = await host.dial(policy.parse_address(run.addresses[0]))
        channel = Channel(link, Timings(), traffic)
        hello = handshake.own_hello(run_id=run.manifest.run_id, agent="late", listen=(), head_step=0)
        await handshake.exchange_hello(channel, hello)
        nursery.start_soon(_stay_behind, run, channel, Signer(seed))
        await trio.sleep(1.0)
        rate = await trio.to_thread.run_sync(run.steps_per_s, seconds)
        nursery.cancel_scope.cancel()
    return rate, traffic.bytes_out


async def _stay_behind(run: LiveRun, channel: Channel, signer: Signer) -> None:
    """Sign each round as soon as it is two rounds old, as what is flooded to us shows."""
    codec, chance, signed = EnvelopeCodec(run.manifest), random.Random(0), -1
    step_bytes = slice(32, 36)  # of a record, SPEC 6.1
    while (message := await channel.receive_untrusted()) is not None:
        match message:
            case Ping(nonce=nonce):
                await channel.send_now(Pong(nonce=nonce))
            case Records(data=data):
                records = codec.split_untrusted(data)
                newest = max(int.from_bytes(record[step_bytes], "big") for record in records)
            case Head(step=step):
                newest = step
            case _:
                continue
        behind = newest - _ROUNDS_BEHIND
        if behind > signed:
            signed = behind
            record = codec.seal(signer, behind, scalars_of(run.manifest, chance)).record
            await channel.send_now(Records(request=0, data=record))


async def _hang_up(link: Link) -> None:
    await link.aclose()
