"""Port mapping: asks the router by UPnP to forward one TCP port to this machine, and removes the mapping at the end.

Blocking calls run in threads. If the node is killed, the router drops the mapping after MAPPING_LEASE_S.
"""

import ipaddress
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import miniupnpc
import trio

from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.policy import Address

_PROTOCOL, _DESCRIPTION, _ANYBODY = "TCP", "sfnode", ""
_PERMANENT_S = 0  # the lease that routers without leases ask for


class NoMappingError(Exception):
    """No router maps the port; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingReport:
    """Describes to the operator the outcome of a mapping; ``address``: the external address if it worked."""

    text: str
    address: Address | None = None


class Gateway:
    """Maps ports on one router. Its methods block, for seconds if the router hangs. NoMappingError."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.own_host = str(device.lanaddr)
        self.external_host = str(_call(device.externalipaddress) or "")

    @property
    def is_public(self) -> bool:
        """Return whether the router's address is public; if it is not, another router is in front of it."""
        try:
            address = external_address(self.external_host, 1)
            return address.is_of_one_machine and not address.is_inside
        except ValueError:
            return False

    def open(self, port: int, before: int = 0) -> int:
        """Map ``port`` of this machine for MAPPING_LEASE_S; return the external port. ``before``: the last one."""
        others = (random.randrange(20_000, 60_000) for _ in range(bounds.MAPPING_TRIES - 1))
        for outside in (before or port, port, *others):
            holder = _call(self._device.getspecificportmapping, outside, _PROTOCOL)
            if holder is None or holder[:2] == (self.own_host, port):
                self._add(outside, port)
                return outside
        raise NoMappingError("the router passes every port that was tried on to others")

    def _add(self, outside: int, port: int) -> None:
        mapping = (outside, _PROTOCOL, self.own_host, port, _DESCRIPTION, _ANYBODY)
        try:
            _call(self._device.addportmapping, *mapping, bounds.MAPPING_LEASE_S)
        except NoMappingError as error:
            if "OnlyPermanentLeasesSupported" not in str(error):
                raise
            _call(self._device.addportmapping, *mapping, _PERMANENT_S)

    def close(self, outside: int) -> None:
        _call(self._device.deleteportmapping, outside, _PROTOCOL)


def find_gateway(*, interface: str | None = None) -> Gateway:
    """Return a router that maps ports. Takes MAPPING_DISCOVER_MS. ``interface``: own IP address. NoMappingError."""
    device = miniupnpc.UPnP(multicastif=interface) if interface else miniupnpc.UPnP()
    device.discoverdelay = bounds.MAPPING_DISCOVER_MS
    try:
        _call(device.discover)
        _call(device.selectigd)
    except NoMappingError:  # the library raises when it finds nothing, or nothing that is a router
        raise NoMappingError("no router answers UPnP") from None
    return Gateway(device)


def external_address(host: str, port: int) -> Address:
    """Return the external address; ValueError if ``host``, which the router named, is not an IPv4 address."""
    return Address(kind="ip4", host=str(ipaddress.IPv4Address(host)), port=port, peer=None)


def _call(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except Exception as error:  # the library raises nothing narrower
        raise NoMappingError(f"the router does not do it: {error}") from None


class PortMapper:
    """Keeps a port of the router mapped to this node. Start ``run`` in a nursery; ``report`` is the last outcome."""

    def __init__(self, *, listening: Callable[[], tuple[Address, ...]], on_mapped: Callable[[Address], None]) -> None:
        """``listening`` returns the listening addresses; ``on_mapped`` is called with each new external address."""
        self._listening = listening
        self._on_mapped = on_mapped
        self._gateway: Gateway | None = None
        self._outside = 0  # 0: nothing is mapped
        self._asking, self._is_leaving = threading.Lock(), False  # a thread that nobody waits for may still map
        self.report: MappingReport | None = None

    async def run(self) -> None:
        """Renew the mapping at intervals; when cancelled, remove it within MAPPING_CLOSE_S."""
        self._is_leaving = False
        try:
            while True:
                await self._renew()
                await trio.sleep(bounds.MAPPING_RENEW_S)
        finally:
            self._is_leaving = True
            with trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.MAPPING_CLOSE_S):
                await self._in_thread(self._close)

    async def _renew(self) -> None:
        """Map the port again: a restarted router has forgotten it and may have another address."""
        try:
            report = await self._in_thread(self._map)
        except NoMappingError as error:
            report = MappingReport(text=f"no port of the router leads here: {error}")
        if report.address is not None and (self.report is None or self.report.address != report.address):
            self._on_mapped(report.address)
        self.report = report

    def _map(self) -> MappingReport:
        gateway = find_gateway()
        inside = self._port_at(gateway.own_host)
        if not gateway.is_public:
            text = f"the router's own address {gateway.external_host!r} is not public: another NAT lies in front of it"
            raise NoMappingError(text)
        with self._asking:
            if self._is_leaving:
                raise NoMappingError("the node stops")
            self._gateway, self._outside = gateway, gateway.open(inside, self._outside)
        address = external_address(gateway.external_host, self._outside)
        text = f"the router passes port {self._outside} of {gateway.external_host} on to port {inside} here"
        return MappingReport(text=text, address=address)

    def _port_at(self, own_host: str) -> int:
        for address in self._listening():
            if address.kind == "ip4" and (address.is_wildcard or address.host == own_host):
                return address.port
        raise NoMappingError(f"this node does not listen at {own_host}, where the router would pass it on to")

    def _close(self) -> None:
        with self._asking:
            if self._gateway is not None and self._outside:
                try:
                    self._gateway.close(self._outside)
                except NoMappingError as error:
                    log(logging.INFO, "port_mapping_left", reason=str(error))

    async def _in_thread(self, run: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True)  # type: ignore[call-arg]  # too old stubs
