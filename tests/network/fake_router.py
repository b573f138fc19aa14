"""A router that speaks UPnP, on loopback: answers SSDP, describes itself, and keeps port mappings."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

HOST = "127.0.0.1"
_GROUP, _PORT = "239.255.255.250", 1900
_SERVICE = "urn:schemas-upnp-org:service:WANIPConnection:1"
_DEVICE = (
    """<device><deviceType>urn:schemas-upnp-org:device:{kind}:1</deviceType><UDN>uuid:{kind}</UDN>{inner}</device>"""
)
_SERVICE_LIST = f"""<serviceList><service><serviceType>{_SERVICE}</serviceType>
<serviceId>urn:upnp-org:serviceId:WANIPConn1</serviceId><controlURL>/control</controlURL>
<eventSubURL>/events</eventSubURL><SCPDURL>/service.xml</SCPDURL></service></serviceList>"""
NO_SUCH_ENTRY, CONFLICT, ONLY_PERMANENT = 714, 718, 725


@dataclass
class FakeRouter:
    """What it keeps. ``mappings``: by port outside, (host, port inside, lease in seconds)."""

    external_host: str = "203.0.113.77"
    has_leases: bool = True
    mappings: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    def answer(self, action: str, told: dict[str, str]) -> dict[str, str] | int:
        """Fields of the answer, or the number of an error."""
        outside = int(told.get("NewExternalPort", 0))
        match action:
            case "GetExternalIPAddress":
                return {"NewExternalIPAddress": self.external_host}
            case "GetStatusInfo":
                return {"NewConnectionStatus": "Connected", "NewLastConnectionError": "ERROR_NONE", "NewUptime": "1"}
            case "GetSpecificPortMappingEntry" if outside in self.mappings:
                host, port, lease_s = self.mappings[outside]
                rest = {"NewEnabled": "1", "NewPortMappingDescription": "x", "NewLeaseDuration": str(lease_s)}
                return {"NewInternalPort": str(port), "NewInternalClient": host, **rest}
            case "AddPortMapping":
                return self._add(outside, told)
            case "DeletePortMapping" if outside in self.mappings:
                del self.mappings[outside]
                return {}
            case _:
                return NO_SUCH_ENTRY

    def _add(self, outside: int, told: dict[str, str]) -> dict[str, str] | int:
        host, lease_s = told["NewInternalClient"], int(told["NewLeaseDuration"])
        if outside in self.mappings and self.mappings[outside][0] != host:
            return CONFLICT
        if lease_s and not self.has_leases:
            return ONLY_PERMANENT
        self.mappings[outside] = (host, int(told["NewInternalPort"]), lease_s)
        return {}


@contextmanager
def running(router: FakeRouter) -> Iterator[FakeRouter]:
    """The router answers on loopback while the block lasts; skips where loopback has no multicast."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            inner = _SERVICE_LIST
            for kind in ("WANConnectionDevice", "WANDevice", "InternetGatewayDevice"):
                device = _DEVICE.format(kind=kind, inner=inner)
                inner = f"<deviceList>{device}</deviceList>"
            self._reply(200, f'<root xmlns="urn:schemas-upnp-org:device-1-0">{device}</root>')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            action = self.headers["SOAPAction"].strip('"').rpartition("#")[2]
            answer = router.answer(action, dict(re.findall(r"<(New\w+)>([^<]*)<", body)))
            if isinstance(answer, int):
                text = {CONFLICT: "ConflictInMappingEntry", ONLY_PERMANENT: "OnlyPermanentLeasesSupported"}.get(answer)
                error = f"<errorCode>{answer}</errorCode><errorDescription>{text}</errorDescription>"
                detail = f'<UPnPError xmlns="urn:schemas-upnp-org:control-1-0">{error}</UPnPError>'
                fault = "<faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring>"
                self._reply(500, _envelope(f"<s:Fault>{fault}<detail>{detail}</detail></s:Fault>"))
                return
            fields = "".join(f"<{name}>{value}</{name}>" for name, value in answer.items())
            self._reply(200, _envelope(f'<u:{action}Response xmlns:u="{_SERVICE}">{fields}</u:{action}Response>'))

        def _reply(self, status: int, text: str) -> None:
            body = f'<?xml version="1.0"?>{text}'.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with _ssdp_socket() as ssdp, ThreadingHTTPServer((HOST, 0), Handler) as server:
        location = f"http://{HOST}:{server.server_port}/device.xml"
        threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}),
            threading.Thread(target=_answer_searches, args=(ssdp, location)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield router
        finally:
            server.shutdown()
            with suppress(OSError):
                ssdp.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            for thread in threads:
                thread.join()


def _envelope(body: str) -> str:
    return f'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>{body}</s:Body></s:Envelope>'


def _ssdp_socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("", _PORT))
        membership = struct.pack("4s4s", socket.inet_aton(_GROUP), socket.inet_aton(HOST))
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        opened.close()
        pytest.skip(f"loopback has no multicast here, or port {_PORT} is taken: {error}")
    return opened


def _answer_searches(ssdp: socket.socket, location: str) -> None:
    while True:
        try:
            packet, source = ssdp.recvfrom(2_000)
        except OSError:
            return
        kind = re.search(rb"\nST: *(\S+)", packet)
        if kind is None:
            return
        lines = ("HTTP/1.1 200 OK", "CACHE-CONTROL: max-age=120", f"ST: {kind[1].decode()}", f"LOCATION: {location}")
        ssdp.sendto("\r\n".join((*lines, "USN: uuid:1::router", "EXT:", "SERVER: fake", "", "")).encode(), source)
