"""Check this machine: how many files may be open, its clock, and the ports that a node listens at."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import psutil
import trio

from protocol.errors import OperatorError
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.network import Address, allowed_files, bounds, check_can_listen, connections_max, discovery
from sfnode.reporter import counted, format_seconds

_BUILT_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # no release is older
_LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_AHEAD_S_MAX = 30.0


def check_files() -> Finding:
    """Check whether the limit on open files, raised as at a node's start, allows `CONNECTIONS_MAX` connections."""
    files, connections = allowed_files(), connections_max()
    text = f"at most {files}, with {connections} connections among them"
    if connections < bounds.CONNECTIONS_MAX:
        advice = "raise the hard limit (`ulimit -Hn`, or limits.conf) where many are to dial this node"
        return warning("open files", f"{text}; other nodes take {bounds.CONNECTIONS_MAX}", advice)
    return ok("open files", text)


def check_clock(offsets_s: list[float]) -> Finding:
    """Check that the clock shows the time: the protocol does not need it, but downloads and logs do.

    ``offsets_s``: how far the clock of each peer is ahead of ours.
    """
    advice = "set it (timedatectl set-ntp true)"
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if not _BUILT_S <= now <= _LATEST_S:
        return fail("clock", f"it shows {shown}", f"{advice}: downloads check certificates by it")
    if not offsets_s:
        return ok("clock", f"it shows {shown}; compared with nothing")
    middle = sorted(offsets_s)[len(offsets_s) // 2]
    size = f"{abs(middle):.1f} s" if abs(middle) < 60.0 else format_seconds(abs(middle))
    seen = f"it is {size} {'behind' if middle > 0 else 'ahead of'} the clocks of {counted(len(offsets_s), 'peer')}"
    if abs(middle) > _AHEAD_S_MAX:
        return warning("clock", seen, f"{advice}, unless you trust it more than theirs: logs cannot be compared")
    return ok("clock", seen)


async def check_port(address: Address, own_pid: int | None) -> Finding:
    """Check one ``--listen`` address; ``own_pid``: the node that runs on the data directory and may listen there."""
    name = f"listen {address}"
    try:
        await check_can_listen((address,))
    except OperatorError as error:
        holder = await trio.to_thread.run_sync(listening_pid, address.port)
        if holder is not None and holder == own_pid:
            return ok(name, f"the node on this data directory listens there, pid {holder}")
        who = ""
        with suppress(psutil.Error):  # it has just ended
            who = "" if holder is None else f" (pid {holder}, {psutil.Process(holder).name()})"
        return fail(name, f"{error}{who}", "choose another port with --listen")
    if address.is_loopback:
        return warning(name, "free, but this machine alone can reach it", "use /ip4/0.0.0.0/tcp/PORT to be dialled")
    return ok(name, "free")


def check_router() -> Finding:
    """Ask the router by UPnP whether it can let peers in. Changes nothing; takes some seconds."""
    name = "router"
    try:
        gateway = discovery.find_gateway()
    except discovery.NoMappingError as error:
        return unknown(name, f"{error}")
    if not gateway.is_public:
        text = f"it speaks UPnP, but has no public address ({gateway.external_host!r}): another NAT lies in front of it"
        return warning(name, text, "ask who runs that one for a forwarded port, or leave --listen out")
    return ok(name, f"it speaks UPnP, and its address is {gateway.external_host}: `sfnode join --upnp` lets peers in")


def listening_pid(port: int) -> int | None:
    """Return the process that listens on a local TCP port; None: none, or the system does not show it to this user."""
    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid is not None:
                return int(each.pid)
    return None


@asynccontextmanager
async def held_open(address: Address | None) -> AsyncIterator[int]:
    """Listen at one address while the block lasts, so that peers can be asked to dial it; yield the port.

    Where that fails, perhaps because a node listens there already, yield the port of ``address``; 0: it has none.
    """
    if address is None:
        yield 0
        return
    async with trio.open_nursery() as nursery:
        port = address.port
        with suppress(OSError):
            listeners = await trio.open_tcp_listeners(address.port, host=None if address.is_wildcard else address.host)
            port = int(listeners[0].socket.getsockname()[1])
            nursery.start_soon(trio.serve_listeners, trio.aclose_forcefully, listeners)
        yield port
        nursery.cancel_scope.cancel()
