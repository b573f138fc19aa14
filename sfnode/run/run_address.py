"""Where a run is, in one string to paste: `sfnode:RUN_ID@ADDRESS,ADDRESS`, which also names the run.

The longer form holds all that a joiner needs, with an invitation: `sfnode:v1.` and encoded bytes (`pasted_string`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgpack

from protocol.crypto import hashing
from protocol.errors import OperatorError
from protocol.run import Invitation, Manifest, read_invitation
from protocol.schema import Bound, Bytes32, Malformed, Name, from_plain_untrusted, is_hex, to_plain
from sfnode.network import Address, bounds, policy
from sfnode.run.pasted_string import SCHEME, is_wrapped, unwrapped, wrapped

_SHOWN = 24  # characters of a text that is no string: it may be a key or an invitation, from the wrong file
NODES_MAX = 4  # in a join string: each makes its QR code larger, and one that answers is enough
_INVITATION_BYTES_MAX = 97


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAddress:
    """Holds a run's id and nodes; from a join string also an invitation, and what it says of model and data.

    Attributes:
        run_id: None: any run that the nodes are in.
        nodes: each with a peer id.
        invitation: to the run, as text; empty: none.
        run_model: the manifest's name of the model; empty: unknown.
        run_data: the manifest's name of the data; empty: unknown.
        run_data_bytes: length of the public data that the nodes give to joiners; 0: they give none.
    """

    run_id: bytes | None = None
    nodes: tuple[Address, ...] = ()
    invitation: str = ""
    run_model: str = ""
    run_data: str = ""
    run_data_bytes: int = 0

    def __str__(self) -> str:
        """Return the address to paste, without an invitation; empty if there is no node to dial."""
        nodes = ",".join(map(str, self.nodes))
        return f"{SCHEME}{self.run_id.hex()}@{nodes}" if self.run_id is not None and nodes else nodes

    @property
    def bounds(self) -> str:
        """Return from where alone the nodes can be dialled, and what to do about it; empty: from anywhere."""
        if any(not node.is_inside for node in self.nodes):
            return ""
        if all(node.is_loopback for node in self.nodes):
            return "only on this machine (for others it needs a network, and --listen /ip4/0.0.0.0/tcp/4001)"
        return "on your own network (--announce names an address for all others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    transport: Name
    author: Bytes32  # the peer id is derived from it, and longer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """Lists the content of a join string, in its order."""

    run_id: Bytes32
    nodes: Annotated[tuple[_Node, ...], Bound(1, NODES_MAX)]
    invitation: Annotated[bytes, Bound(0, _INVITATION_BYTES_MAX)]
    run_model: Name
    run_data: Name
    run_data_bytes: Annotated[int, Bound(0, bounds.DATA_FILE_BYTES_MAX)]


def join_string(address: RunAddress) -> str:
    """Return the join string with at most `NODES_MAX` nodes; empty without one. Run and names must be known."""
    if not address.nodes:
        return ""
    invitation = read_invitation(address.invitation) if address.invitation else None
    nodes = address.nodes[:NODES_MAX]
    content = _Content(
        run_id=address.run_id or b"",
        nodes=tuple(_Node(transport=node.transport, author=policy.author_of_peer(node.peer or "")) for node in nodes),
        invitation=b"" if invitation is None else invitation.packed,
        run_model=address.run_model,
        run_data=address.run_data,
        run_data_bytes=address.run_data_bytes,
    )
    packed: bytes = msgpack.packb(to_plain(content, as_rows=True), use_bin_type=True)
    return wrapped(packed)


def _content_of(text: str) -> RunAddress:
    """Decode a join string, which a stranger may have made. OperatorError."""
    decoded = unwrapped(text)
    try:
        plain = msgpack.unpackb(decoded, max_array_len=16, max_map_len=0, max_ext_len=0)
        content = from_plain_untrusted(_Content, plain, "string")
        nodes = tuple(
            policy.parse_bootstrap(f"{node.transport}/p2p/{policy.peer_of_author(node.author)}")
            for node in content.nodes
        )
    except (ValueError, Malformed, msgpack.UnpackException, OperatorError) as error:
        raise OperatorError(f"the string to join is not one that sfnode makes ({error}). Ask for another") from None
    invitation = Invitation.unpack(content.invitation)
    if invitation is None and content.invitation:
        raise OperatorError("the string to join holds half an invitation. Ask for another")
    return RunAddress(
        run_id=content.run_id,
        nodes=nodes,
        invitation="" if invitation is None else invitation.text,
        run_model=content.run_model,
        run_data=content.run_data,
        run_data_bytes=content.run_data_bytes,
    )


def parse_run_addresses(texts: Sequence[str]) -> RunAddress:
    """Combine what an operator has given: join strings, addresses `sfnode:RUN_ID@ADDRESS,ADDRESS`, and multiaddrs.

    OperatorError: one is malformed, or they are of two runs.
    """
    return combined([_parsed(text) for text in put_together(texts)])


def combined(found: Sequence[RunAddress]) -> RunAddress:
    """Return one address with all nodes, and with what the first join string says. OperatorError for two runs."""
    run_ids = sorted({each.run_id for each in found if each.run_id is not None})
    if len(run_ids) > 1:
        raise OperatorError(
            f"the addresses are of two runs, {run_ids[0].hex()[:16]} and {run_ids[1].hex()[:16]}: a node is in one "
            "of them. Leave the other out"
        )
    longest = next((each for each in found if each.run_model), RunAddress())
    nodes = tuple(node for each in found for node in each.nodes)
    return replace(longest, run_id=next(iter(run_ids), None), nodes=nodes)


def put_together(texts: Sequence[str]) -> list[str]:
    """Join the words into which a shell has split a join string with white space."""
    whole: list[str] = []
    for text in texts:
        is_more = whole and is_wrapped(whole[-1]) and not is_wrapped(text) and not text.startswith(("/", SCHEME))
        whole[-1:] = [whole[-1] + text] if is_more else [*whole[-1:], text]
    return whole


def address_for_others(manifest: Manifest, addresses: Sequence[Address], data_bytes: int) -> RunAddress:
    """Return the address by which others find the run through a node with these addresses.

    It has the public addresses; if there are none, those of the local network; else those of this machine.
    ``data_bytes`` is the length of the public data that the node gives; 0: it gives none.
    """
    own = tuple(dict.fromkeys(addresses))
    public = tuple(address for address in own if not address.is_inside)
    nearby = tuple(address for address in own if not address.is_loopback)
    return RunAddress(
        run_id=manifest.run_id,
        nodes=public or nearby or own,
        run_model=manifest.model.id,
        run_data=manifest.task.data,
        run_data_bytes=data_bytes,
    )


def _parsed(text: str) -> RunAddress:
    if is_wrapped(text):
        return _content_of(text)
    if not text.startswith((SCHEME, "/")):
        shown = repr(text) if len(text) <= _SHOWN else f"{text[: _SHOWN // 4]!r}..."
        raise OperatorError(
            f"{shown} is not a string to join. Take the one that the run's owner has sent you, from {SCHEME} to its "
            "end: `sfnode join -` asks for it"
        )
    if not text.startswith(SCHEME):
        return RunAddress(nodes=(policy.parse_bootstrap(text),))
    run_id, _, nodes = text.removeprefix(SCHEME).partition("@")
    if not is_hex(run_id, 2 * hashing.DIGEST_BYTES) or not nodes:
        raise OperatorError(
            f"{text[:100]!r} is neither a whole string to join, which begins with {SCHEME}v1., nor an address "
            f"{SCHEME}RUN_ID@/ip4/.../tcp/PORT/p2p/ID with {2 * hashing.DIGEST_BYTES} hexadecimal digits for the run. "
            "Copy it whole: `sfnode join -` asks for it"
        )
    return RunAddress(run_id=bytes.fromhex(run_id), nodes=tuple(map(policy.parse_bootstrap, nodes.split(","))))
