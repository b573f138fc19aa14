"""Where a page is served: its address and socket, and the secret that lets browsers on other machines see it."""

import ipaddress
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass

from protocol.errors import OperatorError
from sfnode.storage import DataDirectory, disk

LOOPBACK = "127.0.0.1"
PORT = 8420
_PORTS = 20  # ports to try: this many nodes on one machine can serve a page
TOKEN_FILE = "web.token"
_TOKEN_BYTES = 24  # 192 bits: impossible to guess, and short enough for a line
_TOKEN_LENGTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddress:
    """Names where a page is served; ``port``: None stands for `PORT`, or the next free one."""

    host: str
    port: int | None

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the page."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @staticmethod
    def parse(text: str) -> "PageAddress":
        """Parse HOST, HOST:PORT or [IPV6]:PORT. OperatorError if it is none of these."""
        host, port = _split(text)
        is_port = port is None or (port.isascii() and port.isdecimal() and 0 < int(port) < 65536)
        if not host or not is_port or not _is_of_machine(host):
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


def _is_of_machine(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
        return True
    return False


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


def load_or_create_token(data_dir: DataDirectory) -> tuple[str, bool]:
    """Return the token of a data directory, and whether it was created now.

    OperatorError if other users can read the file, or if it holds no token.
    """
    path = data_dir.path / TOKEN_FILE
    if not path.exists():
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        disk.write_durably(path, f"{token}\n".encode(), mode=0o600)
        return token, True
    if path.stat().st_mode & 0o077:
        raise OperatorError(f"other users of this machine can read {path}. Remove it: the next start makes a new token")
    token = disk.read_bytes(path, "the page's token").decode("ascii", "replace").strip()
    if len(token) != _TOKEN_LENGTH:
        raise OperatorError(
            f"{path} holds no token of {_TOKEN_LENGTH} characters. Remove it: the next start makes a new one"
        )
    return token, False
