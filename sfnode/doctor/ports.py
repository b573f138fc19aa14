"""Check whether a node can listen at its addresses, and which process listens there already."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from protocol.errors import OperatorError
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.network import Address, NoMappingError, check_can_listen, discovery

_LISTENING = "0A"  # state of a socket in /proc/net/tcp


async def check_port(address: Address, own_pid: int | None) -> Finding:
    """Check one ``--listen`` address; ``own_pid``: the node that runs on the data directory and may listen there."""
    name = f"listen {address}"
    try:
        await check_can_listen((address,))
    except OperatorError as error:
        holder = await trio.to_thread.run_sync(listening_pid, address.port)
        if holder is not None and holder == own_pid:
            return ok(name, f"the node on this data directory listens there, pid {holder}")
        who = "" if holder is None else f" (pid {holder}, {_name_of(holder)})"
        return fail(name, f"{error}{who}", "choose another port with --listen")
    if address.is_loopback:
        return warning(name, "free, but this machine alone can reach it", "use /ip4/0.0.0.0/tcp/PORT to be dialled")
    return ok(name, "free")


def check_router() -> Finding:
    """Ask the router by UPnP whether it can let peers in. Changes nothing; takes some seconds."""
    name = "router"
    try:
        gateway = discovery.find_gateway()
    except NoMappingError as error:
        return unknown(name, f"{error}")
    if not gateway.is_public:
        text = f"it speaks UPnP, but has no public address ({gateway.external_host!r}): another NAT lies in front of it"
        return warning(name, text, "ask who runs that one for a forwarded port, or leave --listen out")
    return ok(name, f"it speaks UPnP, and its address is {gateway.external_host}: `sfnode join --upnp` lets peers in")


def listening_pid(port: int) -> int | None:
    """Return the process that listens on a local TCP port; None: none, or /proc does not show it to this user."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not wanted:
        return None
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # another user's process, or one that has just ended
            if any(_target(entry) in wanted for entry in folder.iterdir()):
                return int(folder.parent.name)
    return None


def _listening_inodes(port: int) -> list[str]:
    found = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", name).read_text("ascii").splitlines()[1:]]
            found += [row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port]
    return found


def _target(entry: Path) -> str:
    with suppress(OSError):
        return str(entry.readlink())
    return ""


def _name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    return "?"


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
