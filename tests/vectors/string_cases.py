"""Vectors of connections and texts (SPEC 8.8, 8.9): peer ids, byes, addresses, invitations and strings to join."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgpack

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.run.invitation import Invitation, read_invitation
from sfnode.network import bounds
from sfnode.network.discovery.mdns_packets import run_tag
from sfnode.network.policy.addresses import author_of_peer, parse_address, peer_of_author
from sfnode.network.sessions import handshake
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.sessions.session import Session
from sfnode.run.pasted_string import wrapped
from sfnode.run.run_address import RunAddress, join_string, parse_run_addresses
from tests.vectors.name_cases import invitations_for_many, names
from tests.vectors.notation import Case, Document, case, document

_RUN_ID = bytes(range(32))
_AUTHORS = [Signer(bytes([number]) * 32).author for number in range(5)]
_PEERS = [peer_of_author(author) for author in _AUTHORS]
_NODE = f"/ip4/203.0.113.7/tcp/4001/p2p/{_PEERS[0]}"
_INVITATION = bytes(range(96))


def strings() -> Document:
    """strings.json"""
    parts = (
        _peers(),
        _noise(),
        _sessions(),
        _byes(),
        _addresses(),
        _runs(),
        _invitations(),
        _joins(),
        _tags(),
        invitations_for_many(_INVITATION),
        names(),
        _joins_for_many(),
        _joins_of_no_length(),
    )
    return document("Connections, addresses and texts: SPEC 8.8, 8.9", [each for part in parts for each in part])


# --- 8.8


def _peers() -> Iterator[Case]:
    for name, author in {"the author of 2.2": _AUTHORS[0], "ones": b"\xff" * 32, "zeros": bytes(32)}.items():
        yield case(f"peer id: {name}", "peer_id", {"author": author.hex()}, {"peer": peer_of_author(author)})
    good = _PEERS[0]
    for name, text in {
        "good": good,
        "a digit less": good[:-1],
        "a digit more": good + "1",
        "a digit that base58 does not have": good[:-1] + "0",
        "another kind of key": _base58(bytes.fromhex("002408021220") + _AUTHORS[0]),
        "another multihash": _base58(bytes.fromhex("122408011220") + _AUTHORS[0]),
        "a space after it": good + " ",
        "nothing": "",
    }.items():
        try:
            found: str | None = author_of_peer(text).hex()
        except ValueError:
            found = None
        yield case(f"author of a peer id: {name}", "author_of", {"peer": text}, {"author": found})


def _base58(data: bytes) -> str:
    """With as many digits as a peer id has."""
    digits, number = "", int.from_bytes(data, "big")
    while number:
        number, digit = divmod(number, 58)
        digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[digit] + digits
    return digits.rjust(52, "1")


def _noise() -> Iterator[Case]:
    """The payload with which an identity key vouches for the connection's own key."""
    signer, static = Signer(bytes(32)), bytes(range(100, 132))
    key = bytes.fromhex("08011220") + signer.author
    signature = signer.sign(b"noise-libp2p-static-key:" + static)
    payload = b"\x0a\x24" + key + b"\x12\x40" + signature
    given = {"secret_seed": bytes(32).hex(), "static_key": static.hex()}
    yield case("payload of the Noise handshake", "noise_payload", given, {"payload": payload.hex()})


def _sessions() -> Iterator[Case]:
    smaller, larger = sorted(_AUTHORS[:2])
    for name, own, older, newer in (
        ("both dialled by the other", smaller, (False, 0), (False, 1_000)),
        ("both dialled by this node", larger, (True, 0), (True, 1_000)),
        ("dialled by both, the smaller key first", smaller, (True, 0), (False, 25_000)),
        ("dialled by both, the larger key first", smaller, (False, 0), (True, 25_000)),
        ("seen from the other end, the smaller key first", larger, (False, 0), (True, 25_000)),
        ("seen from the other end, the larger key first", larger, (True, 0), (False, 25_000)),
        ("dialled by both, too long after", smaller, (True, 0), (False, 25_001)),
        ("seen from the other end, too long after", larger, (False, 0), (True, 25_001)),
    ):
        other = larger if own == smaller else smaller
        old = SimpleNamespace(peer=peer_of_author(other), is_outbound=older[0], started_s=older[1] / 1_000)
        table = cast("OpenSessions", SimpleNamespace(_own_key=own))
        new_s, is_to_outbound = newer[1] / 1_000, newer[0]
        is_newer = OpenSessions._gives_way(table, cast("Session", old), new_s, is_to_outbound=is_to_outbound)
        given: dict[str, Any] = {"own": own.hex(), "other": other.hex()}
        for age, (is_outbound, at_ms) in (("older", older), ("newer", newer)):
            given[age] = {"is_own_dial": is_outbound, "at_ms": at_ms}
        yield case(f"two sessions: {name}", "stays", given, {"stays": "newer" if is_newer else "older"})


def _byes() -> Iterator[Case]:
    for text in (
        "other protocol version: 3 there, 2 here",
        "other run: 00 there, 01 here",
        "another run",
        "there is a newer session between us",
        "full",
        "full, and more words",
        "not now",
        "the node stops",
        "Other run",
        "",
    ):
        error = handshake.RefusedError(text)
        away_s = bounds.WRONG_RUN_S if error.is_lasting else bounds.REFUSED_S
        away_s = 0.0 if text.startswith(handshake.DUPLICATE) else away_s
        yield case(f"bye: {text or 'no words'}", "away", {"bye": text}, {"seconds": int(away_s)})


# --- 8.9


def _addresses() -> Iterator[Case]:
    label = "a" * 63
    for text in (
        "/ip4/10.0.0.1/tcp/4001",
        _NODE,
        "/ip4/255.255.255.255/tcp/65535",
        "/ip4/0.0.0.0/tcp/0",
        "/ip4/0.0.0.0/tcp/00001",
        "/ip4/0.0.0.0/tcp/000001",
        "/ip4/10.0.0.1/tcp/65536",
        "/ip4/10.0.0.1/tcp/",
        "/ip4/10.0.0.1/tcp/+1",
        "/ip4/10.0.0.1/tcp/\u0661",
        "/ip4/10.0.0/tcp/1",
        "/ip4/10.0.0.256/tcp/1",
        "/ip4/10.0.0.01/tcp/1",
        "/ip4/::1/tcp/1",
        "/ip6/::1/tcp/4001",
        "/ip6/2001:DB8::7/tcp/1",
        "/ip6/2001:db8:0:0:0:0:0:7/tcp/1",
        "/ip6/::ffff:10.0.0.1/tcp/1",
        "/ip6/::10.0.0.1/tcp/1",
        "/ip6/fe80::1%eth0/tcp/1",
        "/ip6/1::2::3/tcp/1",
        "/ip6/10.0.0.1/tcp/1",
        "/dns/node.example.org/tcp/4001",
        "/dns4/node.example.org./tcp/4001",
        "/dns6/x/tcp/4001",
        "/dns/-x/tcp/4001",
        "/dns/x-/tcp/4001",
        "/dns/x..y/tcp/4001",
        "/dns/x_y/tcp/4001",
        "/dns/\u00fc.example.org/tcp/4001",
        f"/dns/{label}/tcp/1",
        f"/dns/{label}a/tcp/1",
        f"/dns/{'.'.join([label] * 3)}.{'a' * 61}/tcp/1",
        f"/dns/{'.'.join([label] * 3)}.{'a' * 62}/tcp/1",
        "/dns//tcp/1",
        "/dnsaddr/example.org/tcp/1",
        "/ip4/10.0.0.1/udp/4001",
        "/ip4/10.0.0.1/tcp/4001/",
        "/ip4/10.0.0.1/tcp/4001/p2p/",
        f"/ip4/10.0.0.1/tcp/4001/ipfs/{_PEERS[0]}",
        f"/ip4/10.0.0.1/tcp/4001/p2p/{_PEERS[0][:-1]}",
        f"{_NODE}/p2p/{_PEERS[1]}",
        "ip4/10.0.0.1/tcp/4001",
        " /ip4/10.0.0.1/tcp/4001",
        "10.0.0.1:4001",
        "",
    ):
        yield case(f"address: {text!r}", "address", {"text": text}, {"address": _parsed(text)})


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = parse_address(text)
    except ValueError:
        return None
    host = ipaddress.IPv6Address(found.host).exploded if found.kind == "ip6" else found.host
    return {"kind": found.kind, "host": host, "port": found.port, "peer": found.peer}


def _runs() -> Iterator[Case]:
    run, other = _RUN_ID.hex(), f"/dns/node.example.org/tcp/4002/p2p/{_PEERS[1]}"
    for name, text in {
        "one node": f"sfnode:{run}@{_NODE}",
        "two nodes": f"sfnode:{run}@{_NODE},{other}",
        "no node": f"sfnode:{run}@",
        "a node without its peer": f"sfnode:{run}@/ip4/203.0.113.7/tcp/4001",
        "a node that cannot be dialled: port 0": f"sfnode:{run}@/ip4/203.0.113.7/tcp/0/p2p/{_PEERS[0]}",
        "a node that cannot be dialled: 0.0.0.0": f"sfnode:{run}@/ip4/0.0.0.0/tcp/4001/p2p/{_PEERS[0]}",
        "one of two is no address": f"sfnode:{run}@{_NODE},",
        "upper case": f"sfnode:{run.upper()}@{_NODE}",
        "a digit less": f"sfnode:{run[1:]}@{_NODE}",
        "no run": f"sfnode:@{_NODE}",
    }.items():
        found = _read(text)
        told = found and {"run_id": (found.run_id or b"").hex(), "nodes": list(map(str, found.nodes))}
        yield case(f"address of a run: {name}", "run_address", {"text": text}, {"address": told})


def _read(text: str) -> RunAddress | None:
    try:
        return parse_run_addresses([text])
    except OperatorError:
        return None


def _invitations() -> Iterator[Case]:
    text = Invitation(secret=_INVITATION[:32], signature=_INVITATION[32:]).text
    given = {"secret_seed": _INVITATION[:32].hex(), "signature": _INVITATION[32:].hex()}
    yield case("invitation: written", "invite", given, {"text": text})
    for name, each in {
        "read": text,
        "- and _": Invitation(secret=b"\xff\xef" * 16, signature=b"\xfb\xff" * 32).text,
        "a digit less": text[:-1],
        "three bytes less": text[:-4],
        "three bytes more": text + "AAAA",
        "+ in place of -": text[:-2] + "+A",
        "padding": text[:-1] + "=",
        "without its beginning": text.removeprefix("invite:"),
        "its beginning in upper case": text.replace("invite:", "INVITE:"),
    }.items():
        try:
            found: Invitation | None = read_invitation(each)
        except OperatorError:
            found = None
        told = found and {"secret_seed": found.secret.hex(), "signature": found.signature.hex()}
        yield case(f"invitation: {name}", "invitation", {"text": each}, {"invitation": told})


# --- strings to join


def _content(**changed: Any) -> dict[str, Any]:
    nodes = [{"address": "/ip4/203.0.113.7/tcp/4001", "author": _AUTHORS[0].hex()}]
    whole = {"run_id": _RUN_ID.hex(), "nodes": nodes, "invitation": "", "model": "org/model", "data": "private"}
    return {**whole, "data_bytes": 0, **changed}


def _joins() -> Iterator[Case]:
    hosts = ("ip4/203.0.113.7", "ip6/2001:db8::7", "dns/node.example.org", "dns4/x")
    four = [
        {"address": f"/{host}/tcp/{4001 + number}", "author": _AUTHORS[number].hex()}
        for number, host in enumerate(hosts)
    ]
    for name, content in {
        "one node": _content(),
        "four nodes, an invitation, data": _content(
            nodes=four, invitation=_INVITATION.hex(), data="wiki", data_bytes=1 << 26
        ),
        "letters beyond ASCII": _content(model="org/m\u00f6dell \U0001f600"),
    }.items():
        yield case(f"string to join: {name}", "join", content, {"text": _joined(content)})
    good = _joined(_content())
    for name, text in {
        "read": _joined(_content(nodes=four, invitation=_INVITATION.hex(), data_bytes=7)),
        "upper case": good.upper(),
        "its beginning in mixed case": good.replace("sfnode:v", "sFnode:V"),
        "other white space in it": f"{good[:20]}\v{good[20:30]}\f{good[30:40]}\u00a0{good[40:]}",
        "white space in it": f" {good[:20]} \n{good[20:40]}\t{good[40:]}\r\n",
        "a letter less": good[:-1],
        "cut in half": good[: len(good) // 2],
        "its beginning alone": "sfnode:v1.",
        "a letter more": good + "a",
        "a byte more": good + "aa",
        "a wrong letter": good[:30] + ("b" if good[30] != "b" else "c") + good[31:],
        "a digit that base32 does not have": good[:30] + "1" + good[31:],
        "version 2": good.replace("v1.", "v2."),
        "padding": good + "=",
        "another bit after the last byte": _unused_bit(good),
        **{name: _joined(_content(**changed)) for name, changed in _MALFORMED.items()},
        **{name: wrapped(msgpack.packb(plain, use_bin_type=True)) for name, plain in _plain_faults()},
        "no msgpack": wrapped(b"\xc1"),
        "a byte after the array": wrapped(msgpack.packb(_plain(_content()), use_bin_type=True) + b"\0"),
        "nothing in it": wrapped(b""),
    }.items():
        found = _read(text)
        yield case(f"string to join: {name}", "read_join", {"text": text}, {"content": found and _told(found)})


def _joins_for_many() -> Iterator[Case]:
    good = {"an invitation for thirty": b"\x1e", "one for a hundred and one": b"\x65", "one for one, told": b"\1"}
    for name, number in {**good, "an invitation and two bytes": b"\2\2"}.items():
        text = _joined(_content(invitation=(_INVITATION + number).hex()))
        found = _read(text)
        yield case(f"string to join: {name}", "read_join", {"text": text}, {"content": found and _told(found)})


def _joins_of_no_length() -> Iterator[Case]:
    """No bytes give base32 of 1, 3 or 6 digits beyond a multiple of 8."""
    whole = [_joined(_content(model="m" * length)) for length in range(1, 9)]
    lengths = {len(text.partition(".")[2]) % 8: text for text in whole}
    for digits in (1, 3, 6):
        text = lengths[digits - 1] + "a"
        found = _read(text)
        name = f"string to join: {digits} digits beyond a multiple of 8"
        yield case(name, "read_join", {"text": text}, {"content": found and _told(found)})


def _address(text: str) -> list[dict[str, str]]:
    return [{"address": text, "author": _AUTHORS[0].hex()}]


_MALFORMED: dict[str, dict[str, Any]] = {
    "no node": {"nodes": []},
    "five nodes": {"nodes": _address("/ip4/203.0.113.7/tcp/4001") * 5},
    "a node with its peer": {"nodes": _address(_NODE)},
    "a node that is no address": {"nodes": _address("203.0.113.7:4001")},
    "a node that cannot be dialled": {"nodes": _address("/ip4/203.0.113.7/tcp/0")},
    "half an invitation": {"invitation": _INVITATION[:48].hex()},
    "no model": {"model": ""},
    "a model's name that is too long": {"model": "m" * 257},
    "a model's name of the largest length": {"model": "m" * 256},
    "no data": {"data": ""},
    "more data than is sent": {"data_bytes": (1 << 26) + 1},
    "a run id of 31 bytes": {"run_id": _RUN_ID[1:].hex()},
}


def _plain(content: dict[str, Any]) -> list[Any]:
    nodes = [[node["address"], bytes.fromhex(node["author"])] for node in content["nodes"]]
    run_id, invitation = bytes.fromhex(content["run_id"]), bytes.fromhex(content["invitation"])
    return [run_id, nodes, invitation, content["model"], content["data"], content["data_bytes"]]


def _plain_faults() -> Iterator[tuple[str, Any]]:
    good = _plain(_content())
    yield "a member less", good[:-1]
    yield "a member more", [*good, 0]
    yield "a number where text belongs", [*good[:3], 5, *good[4:]]
    yield "true in place of a number", [*good[:5], True]
    yield "a key of 31 bytes", [good[0], [["/ip4/203.0.113.7/tcp/4001", bytes(31)]], *good[2:]]
    yield "no array", 7


def _joined(content: dict[str, Any]) -> str:
    """Of good content what the reference writes; the same by hand of content that it does not write."""
    by_hand = wrapped(msgpack.packb(_plain(content), use_bin_type=True))
    found = _read(by_hand)
    assert found is None or join_string(found) == by_hand
    return by_hand


def _unused_bit(good: str) -> str:
    digits = "abcdefghijklmnopqrstuvwxyz234567"
    assert len(good.removeprefix("sfnode:v1.")) % 8 in (2, 4, 5, 7)
    return good[:-1] + digits[digits.index(good[-1]) + 1]


def _told(found: RunAddress) -> dict[str, Any]:
    nodes = [{"address": node.transport, "author": author_of_peer(node.peer or "").hex()} for node in found.nodes]
    invitation = read_invitation(found.invitation) if found.invitation else None
    return _content(
        run_id=(found.run_id or b"").hex(),
        nodes=nodes,
        invitation=invitation.packed.hex() if invitation else "",
        model=found.run_model,
        data=found.run_data,
        data_bytes=found.run_data_bytes,
    )


def _tags() -> Iterator[Case]:
    for name, run_id in {"small numbers": _RUN_ID, "a hash": hashlib.sha256(b"run").digest()}.items():
        yield case(f"tag: {name}", "tag", {"run_id": run_id.hex()}, {"tag": run_tag(run_id)})
