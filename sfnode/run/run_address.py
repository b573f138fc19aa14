"""Where a run is, in one string to paste: `sfnode:RUN_ID@ADDRESS,ADDRESS`. It says which run the nodes must serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.crypto import DIGEST_BYTES
from protocol.errors import OperatorError
from protocol.schema import is_hex
from sfnode.network import parse_address

_SCHEME: Final = "sfnode:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAddress:
    """Nodes of a run, and which run it must be.

    Attributes:
        run_id: None: whatever run the nodes are in.
        nodes: multiaddrs, each with a peer id.
    """

    run_id: bytes | None = None
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The string to paste; empty where there is no node to dial."""
        nodes = ",".join(self.nodes)
        return f"{_SCHEME}{self.run_id.hex()}@{nodes}" if self.run_id is not None and nodes else nodes

    @property
    def is_public(self) -> bool:
        """Whether one of the nodes can be dialled from other networks."""
        return any(not parse_address(node).is_inside for node in self.nodes)


def parse_run_addresses(texts: Sequence[str]) -> RunAddress:
    """What an operator has given, each `sfnode:RUN_ID@ADDRESS,ADDRESS` or one plain multiaddr; all of one run.

    OperatorError for a string that is cut off, or two runs. The multiaddrs are checked by whoever dials them.
    """
    found = [_parsed(text) for text in texts]
    run_ids = sorted({each.run_id for each in found if each.run_id is not None})
    if len(run_ids) > 1:
        raise OperatorError(
            f"the addresses are of two runs, {run_ids[0].hex()[:16]} and {run_ids[1].hex()[:16]}: a node is in one of "
            "them. Leave the other out"
        )
    return RunAddress(run_id=next(iter(run_ids), None), nodes=tuple(node for each in found for node in each.nodes))


def address_for_others(run_id: bytes, addresses: Sequence[str]) -> RunAddress:
    """How others find the run through a node with these addresses: the public ones; else those of its own network; else
    those of this machine."""
    parsed = {text: parse_address(text) for text in addresses}
    public = tuple(text for text, address in parsed.items() if not address.is_inside)
    nearby = tuple(text for text, address in parsed.items() if not address.is_loopback)
    return RunAddress(run_id=run_id, nodes=public or nearby or tuple(parsed))


def _parsed(text: str) -> RunAddress:
    if not text.startswith(_SCHEME):
        return RunAddress(nodes=(text,))
    run_id, _, nodes = text.removeprefix(_SCHEME).partition("@")
    if not is_hex(run_id, 2 * DIGEST_BYTES) or not nodes:
        raise OperatorError(
            f"address {text[:100]!r}: expected {_SCHEME}RUN_ID@/ip4/.../tcp/PORT/p2p/ID, with {2 * DIGEST_BYTES} "
            "hexadecimal digits for the run. Copy it whole, as a node of the run prints it at its start"
        )
    return RunAddress(run_id=bytes.fromhex(run_id), nodes=tuple(nodes.split(",")))
