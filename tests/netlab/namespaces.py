"""Network namespaces and what joins them: cables, switches, routers with NAT, rate limits. Needs root on Linux.

Names of namespaces carry the id of the process that made them: the next laboratory removes what a killed one left
behind. Nothing here knows of sfnode.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_PREFIX = "sfnetlab"
_PUBLIC = "10.10"  # all switches but those behind NAT are one network
_TOOLS = ("ip", "tc", "setpriv")


def why_not_here() -> str | None:
    """Why this machine cannot make namespaces, and what to do about it; None when it can."""
    if sys.platform != "linux":
        return "network namespaces exist on Linux only: run `make netlab` on a Linux machine"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install iproute2 util-linux (or your system's packages)"
    name = f"{_PREFIX}{os.getpid()}-probe"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if probe.returncode:
        return f"cannot make network namespaces ({probe.stderr.strip()}): run as root, e.g. sudo make netlab"
    run("ip", "netns", "del", name)
    return None


def why_no_nat() -> str | None:
    """Why this machine cannot make a router with NAT, and what to do; None when it can."""
    if _iptables() is None:
        return "no iptables: apt-get install iptables (or your system's package)"
    return None


def run(*command: str) -> str:
    """Run a tool; its output. RuntimeError says what failed and why."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Namespace:
    """One machine of the laboratory."""

    name: str
    full_name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs here, and dies with this process."""
        return ("ip", "netns", "exec", self.full_name, "setpriv", "--pdeathsig", "KILL")

    def ip(self, *arguments: str) -> None:
        """``ip`` in here."""
        run("ip", "-n", self.full_name, *arguments)


@dataclass(frozen=True, slots=True)
class Plug:
    """One end of a cable: a device in a namespace; ``address`` is empty at a switch."""

    at: Namespace
    device: str
    address: str = ""

    def set_up(self, *, is_up: bool) -> None:
        """Pull the cable here, or put it back."""
        self.at.ip("link", "set", self.device, "up" if is_up else "down")

    def limit_rate(self, kbit_per_s: int) -> None:
        """What leaves here has so much bandwidth, and waits up to half a second for it."""
        shape = ("tbf", "rate", f"{kbit_per_s}kbit", "burst", "16kb", "latency", "500ms")
        run("tc", "-n", self.at.full_name, "qdisc", "replace", "dev", self.device, "root", *shape)


@dataclass(frozen=True, slots=True)
class Cable:
    """Two plugs with a wire between."""

    one: Plug
    other: Plug

    def cut(self) -> None:
        """Nothing goes through, and nobody is told: connections hang."""
        self.one.set_up(is_up=False)

    def mend(self) -> None:
        """It works again."""
        self.one.set_up(is_up=True)

    def limit_rate(self, kbit_per_s: int) -> None:
        """So much bandwidth each way."""
        for plug in (self.one, self.other):
            plug.limit_rate(kbit_per_s)


class Wiring:
    """All namespaces of one laboratory; ``remove`` takes them away with all that is in them."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.made: list[Namespace] = []
        self._number = count(1)  # of devices, addresses and subnets

    def remove(self) -> None:
        """Cables and rules go with their namespaces. Processes must have ended before."""
        while self.made:
            run("ip", "netns", "del", self.made.pop().full_name)

    def namespace(self, name: str) -> Namespace:
        """A machine with nothing but loopback."""
        made = Namespace(name, f"{_PREFIX}{os.getpid()}-{name}")
        run("ip", "netns", "add", made.full_name)
        self.made.append(made)
        made.ip("link", "set", "lo", "up")
        return made

    def switch(self, name: str) -> Namespace:
        """A machine that joins all that is plugged into it."""
        made = self.namespace(name)
        made.ip("link", "add", "bridge", "type", "bridge")
        made.ip("link", "set", "bridge", "up")
        return made

    def join(self, one: Namespace, other: Namespace) -> Cable:
        """A cable between two machines and a network of its own for them."""
        number = next(self._number)
        first = f"10.{64 + (number >> 14)}.{number >> 6 & 255}.{4 * (number & 63)}"
        stem, _, last = first.rpartition(".")
        cable = self._cable(one, other, (f"{stem}.{int(last) + 1}", f"{stem}.{int(last) + 2}"))
        for plug in (cable.one, cable.other):
            plug.at.ip("address", "add", f"{plug.address}/30", "dev", plug.device)
        return cable

    def plug(self, machine: Namespace, switch: Namespace) -> Cable:
        """The machine gets an address of the public network. ``one`` of the cable is the machine's end."""
        number = next(self._number)
        cable = self._cable(machine, switch, (f"{_PUBLIC}.{number >> 8}.{number & 255}", ""))
        machine.ip("address", "add", f"{cable.one.address}/16", "dev", cable.one.device)
        switch.ip("link", "set", cable.other.device, "master", "bridge")
        return cable

    def trunk(self, one: Namespace, other: Namespace) -> Cable:
        """Two switches become one network."""
        cable = self._cable(one, other, ("", ""))
        for plug in (cable.one, cable.other):
            plug.at.ip("link", "set", plug.device, "master", "bridge")
        return cable

    def behind_nat(self, machine: Namespace, switch: Namespace) -> tuple[Cable, Cable]:
        """The machine can dial into the switch's network through a router of its own; nobody can dial it.

        Returns the cables behind and before the router; ``one`` of the latter has the router's public address.
        """
        iptables = _iptables()
        assert iptables is not None, "ask why_no_nat first"
        router = self.namespace(f"router-{machine.name}")
        outside = self.plug(router, switch)
        number = next(self._number)
        home = f"192.168.{number & 255}"
        cable = self._cable(machine, router, (f"{home}.2", f"{home}.1"))
        for plug in (cable.one, cable.other):
            plug.at.ip("address", "add", f"{plug.address}/24", "dev", plug.device)
        machine.ip("route", "add", "default", "via", cable.other.address)
        run("ip", "netns", "exec", router.full_name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        inside, outward = cable.other.device, outside.one.device
        for rule in (
            f"-t nat -A POSTROUTING -o {outward} -j MASQUERADE",
            "-P FORWARD DROP",
            f"-A FORWARD -i {inside} -o {outward} -j ACCEPT",
            "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        ):
            run("ip", "netns", "exec", router.full_name, iptables, *rule.split())
        return cable, outside

    def _cable(self, one: Namespace, other: Namespace, addresses: tuple[str, str]) -> Cable:
        device = f"cable{next(self._number)}"
        ends = ("netns", one.full_name, "type", "veth", "peer", "name", device, "netns", other.full_name)
        run("ip", "link", "add", device, *ends)
        cable = Cable(Plug(one, device, addresses[0]), Plug(other, device, addresses[1]))
        for plug in (cable.one, cable.other):
            plug.set_up(is_up=True)
        return cable


def _iptables() -> str | None:
    """The variant that is installed; of two, the older kernel interface, which every kernel with NAT has."""
    return next((name for name in ("iptables-legacy", "iptables") if shutil.which(name)), None)


def _remove_leftovers() -> None:
    for line in run("ip", "netns", "list").splitlines():
        name = line.split(" ", 1)[0]
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            run("ip", "netns", "del", name)
