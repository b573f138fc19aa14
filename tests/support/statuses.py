"""A node's status as tests want it: one that trains and is well, to be changed by `changed`; and an empty one."""

from __future__ import annotations

import typing
from dataclasses import fields, replace
from typing import Any, TypeVar

from protocol.wire import PeerId
from sfnode.network.memory_guard import MemoryState
from sfnode.network.reports import PeerState
from sfnode.status import LossPoint, News, Status, StatusDetail
from sfnode.storage.evaluations import EvaluatedStep, Gain

T = TypeVar("T")
Record = TypeVar("Record", Status, StatusDetail)


def blank(kind: type[T]) -> T:
    """A record in which nothing has happened: zeros, empty texts and lists, None where that is allowed."""
    return kind(**{name: _blank_value(declared) for name, declared in typing.get_type_hints(kind).items()})


def _blank_value(declared: Any) -> Any:
    if type(None) in typing.get_args(declared):
        return None
    kind: type[Any] = typing.get_origin(declared) or declared
    return blank(kind) if hasattr(kind, "__dataclass_fields__") else kind()


def changed(record: Record, **figures: object) -> Record:
    """The status, or its detail, with other figures, whichever of its sections holds them."""
    names = {each.name for each in fields(record)}
    changes: dict[str, Any] = {}
    for name, value in figures.items():
        if name in names:
            changes[name] = value
        else:
            (owner,) = (each for each in names - {"detail"} if hasattr(getattr(record, each), name))
            changes[owner] = replace(changes.get(owner, getattr(record, owner)), **{name: value})
    return replace(record, **changes)


PEERS = (
    "12D3KooWJ6TccFjUz788znF9SgUwK15Rx3VR4ATkubeT4WXpf6h1",
    "12D3KooWFj9r2v7x3mZpQ4sN8tYbKcLdMeWgHaRiSoUwP9YXcaaa",
    "12D3KooWQk5bT8nVwXyZaBcDeFgHiJkLmNoPqRsTuVwXyZbn3nt8",
)


def peer_state(number: int, *, is_equal: bool = True) -> PeerState:
    """The neighbour of that number, dialled by the node where it is even."""
    return PeerState(
        peer=PeerId(PEERS[number]), address=f"/ip4/192.0.2.{number + 1}/tcp/4001", is_outbound=number % 2 == 0,
        agent="sfnode", rtt_ms=12.5 + number, score=0.0, bytes_in=1_000, bytes_out=2_000, updates=477 + number,
        is_equal=is_equal, own_updates_min=118 + number if is_equal else None,
    )  # fmt: skip


LOSSES = tuple(LossPoint(step=step, loss=0.7 - step / 1_000 + (step % 3) / 100) for step in range(120))
EVALUATIONS = tuple(
    EvaluatedStep(step=step, accuracy=0.5 + step / 500, loss=0.69 - step / 800, rows=200) for step in range(0, 121, 10)
)
DETAIL = changed(
    blank(StatusDetail),
    uptime_s=200.0, run_step=122, lag_steps=2, own_updates=120, steps_per_s=1.5, left_s=253.0, directions=8,
    directions_max=8, round_s=0.6, bytes_in_per_s=3_100.0,
    bytes_out_per_s=2_900.0, rows_per_s=230.0, processes_bytes=480 << 20,
    peers=tuple(peer_state(number) for number in range(3)), evaluations=EVALUATIONS, best=EVALUATIONS[-1],
    gain=Gain(before=EVALUATIONS[0], own=EVALUATIONS[6], after=EVALUATIONS[-1]),
    losses=LOSSES, news=(News(time=1_700_000_000.0, text="peer 12D3*Xpf6h1 joined", is_bad=False),),
)  # fmt: skip
STATUS = changed(
    blank(Status),
    run="reviews", run_id="3f" * 32, author="ab" * 32, pid=1, step=120, steps=500, updates=480, authors=4,
    own_updates=120, peers=3, expects_peers=True, is_training=True, loss=0.5821, accuracy=0.74, forward_rows=9_000,
    ledger_root="aa" * 32, state_digest="bb" * 32, bytes_in=120_000, bytes_out=110_000, payload_bytes=59_520,
    ignored=2, admission="open", is_admitted=True,
    memory=MemoryState(bytes_max=512 << 20, resident_bytes=112 << 20), disk_free_bytes=41_500_000_000,
    time=1_700_000_100.0, detail=DETAIL,
)  # fmt: skip
