"""Packets of libp2p's discovery on a local network (libp2p mdns, RFC 6762): encoding and untrusted decoding. Pure.

A query asks for ``_p2p._udp.local``. An answer names a random host below that name; its TXT record lists the sender's
addresses as ``dnsaddr=`` strings. Our answers also name the run by its tag: `run_tag`.
"""

import hashlib
import struct
from dataclasses import dataclass

from sfnode.network import bounds

SERVICE = (b"_p2p", b"_udp", b"local")
_DNSADDR = b"dnsaddr="
_RUN = b"sfnode-run="
_TAG_DOMAIN = b"sfnode/mdns/1"
_TAG_BYTES = 8  # another tag means another run; if tags are equal, hello compares the run ids
_HEADER = struct.Struct(">HHHHHH")  # id, flags, questions, answers, authorities, additional
_RECORD = struct.Struct(">HHIH")  # type, class, time to live (s), length of the data
_IS_ANSWER, _AUTHORITATIVE = 0x8000, 0x0400
_PTR, _TXT, _ANY, _IN, _FLUSH = 12, 16, 255, 1, 0x8000
_TTL_S = 120
_POINTER = 0xC0

Name = tuple[bytes, ...]  # labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question for libp2p peers on the local network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An answer with addresses of peers. The texts are not checked; they may not be addresses.

    Attributes:
        run: the tag of the sender's run; empty if it names none.
    """

    addresses: tuple[str, ...]
    run: str = ""


class _MalformedError(Exception):
    """A packet that no honest program sends."""


def encode_query() -> bytes:
    """Return a packet that asks for libp2p peers."""
    return _HEADER.pack(0, 0, 1, 0, 0, 0) + _encode_name(SERVICE) + struct.pack(">HH", _PTR, _IN)


def run_tag(run_id: bytes) -> str:
    """Return a run's name on the local network: a hash that separates runs and does not reveal the run id."""
    return hashlib.sha256(_TAG_DOMAIN + run_id).hexdigest()[: 2 * _TAG_BYTES]


def encode_announcement(label: bytes, addresses: tuple[str, ...], run: str = "") -> bytes:
    """Return a packet that announces ``addresses``: multiaddrs with the peer id, at most 240 bytes each.

    ``label``: random, at most 63 bytes; it hides the machine's name. ``run``: tag of the run.
    """
    host = (label, *SERVICE)
    texts = [_DNSADDR + address.encode("ascii") for address in addresses]
    texts += [_RUN + run.encode("ascii")] if run else []
    txt = b"".join(bytes([len(text)]) + text for text in texts)
    packet = _HEADER.pack(0, _IS_ANSWER | _AUTHORITATIVE, 0, 1, 0, 1)
    packet += _encode_record(SERVICE, _PTR, _IN, _encode_name(host))
    return packet + _encode_record(host, _TXT, _IN | _FLUSH, txt)


def _encode_record(name: Name, kind: int, record_class: int, data: bytes) -> bytes:
    return _encode_name(name) + _RECORD.pack(kind, record_class, _TTL_S, len(data)) + data


def _encode_name(labels: Name) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def decode_packet_untrusted(packet: bytes) -> Query | Announcement | None:
    """Decode a packet of the local network; return None if it is malformed or not about libp2p peers."""
    try:
        return _Reader(packet).read()
    except (_MalformedError, struct.error, IndexError):
        return None


class _Reader:
    """Reads one packet. Every loop is bounded by the packet's length and by bounds."""

    def __init__(self, packet: bytes) -> None:
        if len(packet) > bounds.MDNS_PACKET_BYTES_MAX:
            raise _MalformedError
        self._packet = packet
        self._at = _HEADER.size
        self._pointers = 0  # number followed so far

    def read(self) -> Query | Announcement | None:
        _, flags, questions, *others = _HEADER.unpack_from(self._packet)
        if questions + sum(others) > bounds.MDNS_RECORDS_MAX:
            raise _MalformedError
        asked = [self._question() for _ in range(questions)]
        if not flags & _IS_ANSWER:
            return Query() if any(asked) else None
        texts = [text for _ in range(sum(others)) for text in self._record()]
        addresses = tuple(text[len(_DNSADDR) :].decode("ascii") for text in texts if text.startswith(_DNSADDR))
        run = next((text[len(_RUN) :].decode("ascii") for text in texts if text.startswith(_RUN)), "")
        return Announcement(addresses=addresses[: bounds.MDNS_ADDRESSES_MAX], run=run) if addresses else None

    def _question(self) -> bool:
        """Read a question; return whether it asks for libp2p peers."""
        name = self._name()
        kind, record_class = struct.unpack_from(">HH", self._packet, self._at)
        self._at += 4
        return name == SERVICE and kind in (_PTR, _ANY) and record_class & ~_FLUSH == _IN

    def _record(self) -> list[bytes]:
        """Read a record; return the ASCII strings of a libp2p TXT record, and none of other records."""
        name = self._name()
        kind, record_class, _, length = _RECORD.unpack_from(self._packet, self._at)
        start = self._at + _RECORD.size
        self._at = start + length
        if self._at > len(self._packet):
            raise _MalformedError
        is_ours = len(name) == len(SERVICE) + 1 and name[1:] == SERVICE
        if kind != _TXT or record_class & ~_FLUSH != _IN or not is_ours:
            return []
        return _texts(self._packet[start : self._at])

    def _name(self) -> Name:
        """Read a name; return its labels in lower case. Pointers must lead backwards, so that reading ends."""
        labels: list[bytes] = []
        at, end = self._at, None
        while (size := self._packet[at]) != 0:
            if size & _POINTER == _POINTER:  # RFC 1035, 4.1.4: the rest of the name stands at an earlier place
                target = (size & ~_POINTER) << 8 | self._packet[at + 1]
                end = at + 2 if end is None else end
                self._pointers += 1
                if target >= at or self._pointers > bounds.MDNS_POINTERS_MAX:
                    raise _MalformedError
                at = target
                continue
            label = self._packet[at + 1 : at + 1 + size]
            if size & _POINTER or len(label) < size or len(labels) >= bounds.MDNS_LABELS_MAX:
                raise _MalformedError
            labels.append(label.lower())
            at += 1 + size
        self._at = at + 1 if end is None else end
        return tuple(labels)


def _texts(data: bytes) -> list[bytes]:
    """Return the strings of a TXT record that hold an address or a run."""
    found, at = [], 0
    while at < len(data):
        text = data[at + 1 : at + 1 + data[at]]
        if len(text) < data[at]:
            raise _MalformedError
        at += 1 + len(text)
        if text.startswith((_DNSADDR, _RUN)) and text.isascii():
            found.append(text)
    return found
