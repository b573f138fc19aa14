"""Check the bootstraps: whether each answers, how it sees us, and whether it and others can dial us."""

import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from protocol.errors import Reject
from protocol.run import SignedManifest, decode_run_untrusted
from protocol.wire import Bye
from sfnode import network
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.network import Address, DialBack, Host, Link, ReachAnswer, RefusedError, handshake
from sfnode.reporter import counted

_RESOLVE_S = 10.0
_PEER_S = 60.0  # for all questions to one peer
_ADVICE_OF_REASON = {
    "connection refused": "no program listens there: start that node, or correct host and port",
    "no answer within": "the host is off, the address wrong, or a firewall in between: ask its owner, try another",
    "another node answers": "it has a new key: ask its owner for its present address",
    "that is not an sfnode node": "another program uses that port: correct the address",
    "no route": "this machine has no way there: check its connection",
    "network is unreachable": "this machine has no way there: check its connection",
}


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """Collects what the bootstraps answer.

    Attributes:
        run_id: the run to expect; None until the first bootstrap answers, then its run.
        signed: the manifest, from the disk or the first bootstrap that has one.
        listen_port: the port at which to ask peers to dial us; 0: do not ask.
        answers: how each peer sees us; clocks_ahead_s: by how much its clock is ahead of ours.
    """

    run_id: bytes | None
    signed: SignedManifest | None
    listen_port: int
    answers: list[ReachAnswer] = field(default_factory=list)
    clocks_ahead_s: list[float] = field(default_factory=list)


async def check_bootstraps(nodes: tuple[Address, ...], known: Surroundings, report: Callable[[Finding], None]) -> None:
    """Check each bootstrap under a fresh key; pass on a finding for each, and add the answers to ``known``."""
    if not nodes:
        return
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=Link.aclose)
    async with host.running(()):
        for address in nodes:
            with trio.move_on_after(_PEER_S) as scope:
                report(await _check_bootstrap(host, address, known))
            if scope.cancelled_caught:
                report(fail(f"bootstrap {address}", f"not done within {_PEER_S:.0f} s", "try another one"))


async def _check_bootstrap(host: Host, address: Address, known: Surroundings) -> Finding:
    name = f"bootstrap {address}"
    if (trouble := await _resolve(name, address)) is not None:
        return trouble
    started_s = trio.current_time()
    try:
        link = await host.dial(address)
    except network.DialError as error:
        advice = next((text for part, text in _ADVICE_OF_REASON.items() if part in str(error)), "try another bootstrap")
        return fail(name, str(error), advice)
    taken_ms = 1_000 * (trio.current_time() - started_s)
    try:
        return await _talk(host, link, known, name, taken_ms)
    except RefusedError as error:
        return _refused(name, error)
    except network.OtherRunError as error:
        return fail(name, f"it {error}, which it said it was in", "use another bootstrap")
    except (Reject, network.LinkBrokenError) as error:
        return fail(name, f"it does not keep to the protocol: {error}", "use another bootstrap")
    finally:
        await link.aclose()


async def _resolve(name: str, address: Address) -> Finding | None:
    if address.kind in ("ip4", "ip6"):
        return None
    try:
        with trio.fail_after(_RESOLVE_S):
            await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, trio.TooSlowError, UnicodeError):
        advice = "check the name and this machine's name server, or use the node's IP address"
        return fail(name, f"the name {address.host} does not resolve", advice)
    return None


def _refused(name: str, error: RefusedError) -> Finding:
    if error.reason.startswith(handshake.FULL):
        return warning(name, "it works, but takes no more visitors just now", "try later, or add another bootstrap")
    if error.reason.startswith(handshake.OTHER_VERSION):
        return fail(name, error.reason, "install the version of sfnode that the run uses")
    return fail(name, f"it answers, but refuses: {error.reason}", "ask its owner, or use another bootstrap")


async def _talk(host: Host, link: Link, known: Surroundings, name: str, taken_ms: float) -> Finding:
    channel = network.Channel(link, network.Timings(), network.Traffic())
    own = handshake.own_hello(run_id=handshake.OBSERVER_RUN_ID, agent="sfnode doctor", listen=(), head_step=0)
    hello = await handshake.exchange_hello(channel, own)
    if known.run_id is not None and hello.run_id != known.run_id:
        text = f"it is in another run, {hello.run_id.hex()[:16]}, not in {known.run_id.hex()[:16]}"
        return fail(name, text, "use a bootstrap of this run, or another --data-dir or --run for that one")
    known.run_id = hello.run_id
    if known.signed is None:
        known.signed = decode_run_untrusted(await network.Download(network.Wanted.manifest(hello.run_id)).run(channel))
    answer = await host.ask_reach(link, known.listen_port)
    if answer is not None:
        known.answers.append(answer)
        known.clocks_ahead_s.append(answer.unix_ms / 1_000 - time.time())
    await channel.send_now(Bye(reason="thank you"))
    agent = hello.agent.encode("unicode_escape").decode("ascii")[:40]
    return ok(name, f"answers in {taken_ms:.0f} ms, {agent!r}, run {hello.run_id.hex()[:16]} at step {hello.head_step}")


def judge_reachability(known: Surroundings, is_listening: bool) -> Finding:
    """Judge by the peers' answers whether others can dial this machine."""
    name = "reachable from outside"
    if not is_listening:
        return unknown(name, "not asked: without --listen a node dials out only, and is a full member all the same")
    if not known.answers:
        return unknown(name, "nobody to ask: no bootstrap answered this question", "give a --bootstrap that works")
    outcomes = [answer.outcome for answer in known.answers]
    port = known.listen_port
    if DialBack.REACHED in outcomes:
        hosts = sorted({answer.host for answer in known.answers if answer.outcome is DialBack.REACHED})
        if all(ipaddress.ip_address(host).is_private for host in hosts):
            text = f"peers in your own network reached port {port} at {', '.join(hosts)}; nobody outside was asked"
            return ok(name, text)
        return ok(name, f"peers reached port {port} at {', '.join(hosts)}")
    if DialBack.NOT_REACHED in outcomes:
        host = known.answers[0].host
        text = f"{counted(outcomes.count(DialBack.NOT_REACHED), 'peer')} could not connect to port {port} at {host}"
        advice = f"forward TCP port {port} in your router and open it in the firewall, or leave --listen out"
        return warning(name, text, advice)
    return unknown(name, "the peers had dialled for others just now", "try again in a minute")
