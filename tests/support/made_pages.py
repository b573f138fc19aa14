"""Data directories and pages that are made up: no node runs, and what they show can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest, sign_manifest
from protocol.wire import PeerId
from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.reports import PeerState
from sfnode.page.node_page import LogTail, Page
from sfnode.status import LossPoint, Status, StatusDetail
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from sfnode.storage.disk import write_json
from sfnode.storage.evaluations import EvaluatedStep
from sfnode.storage.record_store import Store
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import OWNER, small_manifest
from tests.support.statuses import blank, changed, peer_state

PID = 4_711


def plain_status(**changes: object) -> dict[str, object]:
    """A status as it lies in its file, with these fields; all others are empty."""
    return changed(blank(Status), **{"pid": PID, "is_admitted": True} | changes).to_json()


@dataclass
class MadeNode:
    """What lies in ``directory`` after some steps of some authors; author 0 is the node itself."""

    directory: Path
    manifest: Manifest = field(default_factory=lambda: small_manifest(steps=400))
    tail: LogTail = field(default_factory=LogTail)
    neighbours: list[PeerState] = field(default_factory=list)
    ledger: Ledger | None = None

    def advance(self, step: int, authors: int = 4, **status: object) -> None:
        """Author ``a`` has signed the steps from 20 a to ``step``; every tenth step was evaluated."""
        records = [seal(self.manifest, author, at) for author in range(authors) for at in range(20 * author, step)]
        self.ledger = ledger_of(self.manifest, records)
        done = [EvaluatedStep(step=at, accuracy=0.5 + at / 1_000, loss=0.7 - at / 900, rows=64) for at in _tens(step)]
        DataDirectory(self.directory).evaluations.write(done)
        common = {"run": self.manifest.name, "author": signer(0).author.hex(), "steps": self.manifest.steps}
        counts = {"step": step, "updates": len(records), "authors": authors, "peers": len(self.neighbours)}
        shown = (
            common
            | counts
            | {
                "loss": 0.71 - step / 900,
                "time": 1e9 + step,
                "is_training": True,
                "detail": _detail(step, self.neighbours),
            }
        )
        shown |= status
        write_json(self.directory / STATUS_FILE, plain_status(**shown))

    def link(self, *authors: int) -> None:
        """These are the neighbours now; the first of them was dialled, and holds the same."""
        self.neighbours = [_linked(author, is_first=number == 0) for number, author in enumerate(authors)]

    def store(self) -> None:
        """Put manifest and records where a node keeps them."""
        assert self.ledger is not None
        store = Store(DataDirectory(self.directory), sign_manifest(self.manifest, OWNER))
        store.add(self.ledger.slots.ordered_records(), is_durable=False)
        store.close()

    def page(self, kind: type[Page] = Page) -> Page:
        """The page of the node while it runs."""
        return kind(DataDirectory(self.directory), self.manifest, lambda: self.ledger, pid=PID, tail=self.tail)


def _tens(step: int) -> range:
    return range(0, step + 1, 10)


def _detail(step: int, peers: Sequence[PeerState]) -> StatusDetail:
    losses = tuple(LossPoint(step=at, loss=0.72 - at / 900) for at in range(0, step, 5))
    return changed(blank(StatusDetail), peers=tuple(peers), losses=losses, steps_per_s=2.5, left_s=(400 - step) / 2.5)


def _linked(author: int, *, is_first: bool) -> PeerState:
    return replace(
        peer_state(0, is_equal=is_first),
        peer=PeerId(peer_of_author(signer(author).author)),
        address=f"/ip4/203.0.113.{author}/tcp/4001",
        is_outbound=is_first,
        updates=100,
    )
