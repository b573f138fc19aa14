"""SPEC 8.8 and 8.9: protocol ids, peer ids, addresses and what a bye may begin with are those of the code."""

from __future__ import annotations

import re

import pytest
from libp2p.protocol_muxer.multiselect import MULTISELECT_PROTOCOL_ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX

from protocol.crypto.keys import Signer
from protocol.run.invitation import Invitation, read_invitation
from sfnode.network import bounds
from sfnode.network.discovery.mdns_packets import encode_query
from sfnode.network.policy.addresses import parse_bootstrap, peer_of_author
from sfnode.network.sessions import handshake
from sfnode.network.sessions.file_server import FILES_PROTOCOL
from sfnode.network.transport import ping, reachability
from sfnode.network.transport.host import PROTOCOL
from sfnode.run.run_address import parse_run_addresses
from tests import REPOSITORY

SPEC = (REPOSITORY / "protocol" / "SPEC.md").read_text("utf-8")
TRANSPORT, TEXTS = re.split(r"\n### 8\.[89] |\n---\n## 9 ", SPEC)[1:3]


@pytest.mark.parametrize(
    "protocol",
    [MULTISELECT_PROTOCOL_ID, NOISE, YAMUX, PROTOCOL, FILES_PROTOCOL, reachability.PROTOCOL, ping.PROTOCOL],
)
def test_protocol_id__of_the_code__stands_in_the_specification(protocol: str) -> None:
    assert f"`{protocol}`" in TRANSPORT


def test_peer_id__example_of_the_specification__is_the_authors() -> None:
    assert peer_of_author(Signer(bytes(32)).author) in TRANSPORT


def test_run_address__example_of_the_specification__is_read() -> None:
    example = re.search(r"`(sfnode:\S+)`", TEXTS.split("Example:")[1])
    assert example is not None
    address = parse_run_addresses([example[1]])
    assert address.run_id == bytes(range(32)) and str(address) == example[1]
    assert address.nodes == tuple(map(parse_bootstrap, example[1].partition("@")[2].split(",")))


def test_invitation__of_any_bytes__has_the_form_of_the_specification() -> None:
    text = Invitation(secret=bytes(32), signature=b"\xff" * 64).text
    form = re.search(r"`(invite:)` and (\d+) digits", TEXTS)
    assert form is not None
    assert text.startswith(form[1]) and len(text) == len(form[1]) + int(form[2])
    assert read_invitation(text).signature == b"\xff" * 64


def test_query__of_the_local_network__is_that_of_the_specification() -> None:
    assert encode_query().hex() in re.sub(r"[`\s]", "", TEXTS)


def test_bye__beginnings_with_a_meaning__stand_in_the_specification() -> None:
    rows = [line.split("|")[1] for line in TRANSPORT.splitlines() if line.startswith("| `") or "anything else" in line]
    texts = [re.findall("`([^`]+)`", row) for row in rows]
    assert texts[0] == [handshake.OTHER_VERSION, handshake.OTHER_RUN]
    assert texts[1] == [handshake.DUPLICATE]
    assert {handshake.FULL, handshake.DISCOURAGED, handshake.NO_BASIS} <= set(texts[2])
    assert all(handshake.RefusedError(text).is_lasting == (row == 0) for row in range(3) for text in texts[row])


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (bounds.FIRST_SESSION_S, "and does so within {:.0f} s"),
        (bounds.STREAM_WINDOW_BYTES, "stays at {:,} bytes"),
        (bounds.CONNECTION_BUFFER_BYTES_MAX, "{:,} unread bytes"),
        (bounds.SIMULTANEOUS_S, "began within {:.0f} s"),
        (bounds.HELLO_S, "comes within {:.0f} s"),
        (bounds.PING_INTERVAL_S, "After {:.0f} s a Ping"),
        (bounds.DEAD_S, "has sent nothing for {:.0f} s"),
        (bounds.WRITE_S, "accepts nothing for {:.0f} s"),
        (bounds.BYE_S, "or after {} s"),
    ],
)
def test_bound__of_the_code__is_that_of_the_specification(value: float, sentence: str) -> None:
    assert sentence.format(value) in TRANSPORT
