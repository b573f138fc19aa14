"""Parse the address at which a page is served, and open its socket."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from protocol.errors import OperatorError

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8420
_PORTS: Final = 20  # ports to try: this many nodes on one machine can serve a page


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddress:
    """Names where a page is served; ``port``: None stands for `PORT`, or the next free one."""

    host: str
    port: int | None

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the page."""
        return self.host == "localhost" or (_ip(self.host) is not None and ipaddress.ip_address(self.host).is_loopback)

    @staticmethod
    def parse(text: str) -> "PageAddress":
        """Parse HOST, HOST:PORT or [IPV6]:PORT. OperatorError if it is none of these."""
        host, port = _split(text)
        is_port = port is None or (port.isascii() and port.isdecimal() and 0 < int(port) < 65536)
        if not host or not is_port or (host != "localhost" and _ip(host) is None):
            raise OperatorError(
                f"--web {text!r} is not an address to serve the page at: write an IP address of this machine and a "
                f"port, such as {LOOPBACK}:{PORT}; or leave it out, and write --web as the last option"
            )
        return PageAddress(host=host, port=None if port is None else int(port))

    def listen(self) -> socket.socket:
        """Return a socket that listens here. OperatorError if none of the permitted ports is free."""
        ports = range(PORT, PORT + _PORTS) if self.port is None else (self.port,)
        reason = ""
        for port in ports:
            try:
                return _listening(self.host, port)
            except OSError as error:
                reason = error.strerror or str(error)
        where = f"ports {ports[0]} to {ports[-1]}" if len(ports) > 1 else f"port {ports[0]}"
        raise OperatorError(
            f"the page cannot be served at {self.host}, {where}: {reason}. Name another address with --web HOST:PORT, "
            "or leave --web away"
        )


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return host if bracket else "", rest.removeprefix(":") if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _ip(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _listening(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(16)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
