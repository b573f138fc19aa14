"""A node's status as tests want it: one that trains and is well, to be changed by `replace`."""

from __future__ import annotations

from sfnode.network.memory_guard import MemoryState
from sfnode.status import LossPoint, News, PeerState, Status, StatusDetail
from sfnode.storage.evaluations import EvaluatedStep

PEERS = (
    "12D3KooWJ6TccFjUz788znF9SgUwK15Rx3VR4ATkubeT4WXpf6h1",
    "12D3KooWFj9r2v7x3mZpQ4sN8tYbKcLdMeWgHaRiSoUwP9YXcaaa",
    "12D3KooWQk5bT8nVwXyZaBcDeFgHiJkLmNoPqRsTuVwXyZbn3nt8",
)


def peer_state(number: int, *, is_equal: bool = True) -> PeerState:
    """The neighbour of that number, dialled by the node where it is even."""
    return PeerState(
        peer=PEERS[number], address=f"/ip4/192.0.2.{number + 1}/tcp/4001", is_outbound=number % 2 == 0,
        agent="sfnode", rtt_ms=12.5 + number, score=0.0, bytes_in=1_000, bytes_out=2_000, updates=477 + number,
        is_equal=is_equal, own_updates_min=118 + number if is_equal else None,
    )  # fmt: skip


LOSSES = tuple(LossPoint(step=step, loss=0.7 - step / 1_000 + (step % 3) / 100) for step in range(120))
EVALUATIONS = tuple(
    EvaluatedStep(step=step, accuracy=0.5 + step / 500, loss=0.69 - step / 800, rows=200) for step in range(0, 121, 10)
)
DETAIL = StatusDetail(
    uptime_s=200.0, run_step=122, lag_steps=2, own_updates=120, steps_per_s=1.5, left_s=253.0, directions=8,
    directions_max=8, round_s=0.6, bytes_in_per_s=3_100.0,
    bytes_out_per_s=2_900.0, rows_per_s=230.0, processes_bytes=480 << 20,
    peers=tuple(peer_state(number) for number in range(3)), evaluations=EVALUATIONS, best=EVALUATIONS[-1],
    losses=LOSSES, news=(News(time=1_700_000_000.0, text="peer 12D3*Xpf6h1 joined", is_bad=False),),
)  # fmt: skip
STATUS = Status(
    run="reviews", run_id="3f" * 32, author="ab" * 32, pid=1, step=120, steps=500, is_finished=False, is_over=False,
    equal_peers=0, differing_peers=0, awaited_authors=0, updates=480, void_slots=0, authors=4, own_updates=120,
    skipped_steps=0, catching_up=0, peers=3, expects_peers=True, is_training=True, paused="", trouble="", unreached="",
    loss=0.5821, accuracy=0.74, forward_rows=9_000, worker_restarts=0, ledger_root="aa" * 32, state_digest="bb" * 32,
    bytes_in=120_000, bytes_out=110_000, payload_bytes=59_520, rejected=0, ignored=2, model=None,
    join="", join_string="", admission="open", is_admitted=True,
    is_invitation_used=False, excluded_from=None, authors_excluded=0,
    memory=MemoryState(bytes_max=512 << 20, resident_bytes=112 << 20), disk_free_bytes=41_500_000_000,
    time=1_700_000_100.0, detail=DETAIL,
)  # fmt: skip
