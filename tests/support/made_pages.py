"""Data directories and pages that are made up: no node runs, and what they show can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest, sign_manifest
from sfnode.network.memory_guard import MemoryState
from sfnode.network.policy.addresses import peer_of_author
from sfnode.page.log_tail import LogTail
from sfnode.page.node_page import Page, PageSource
from sfnode.status import PeerState, Status, StatusDetail
from sfnode.storage.evaluations import EvaluatedStep, write_evaluations
from sfnode.storage.files import write_json
from sfnode.storage.store import STATUS_FILE, Store
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import OWNER, small_manifest

PID = 4_711
_EMPTY = {"int": 0, "float": 0.0, "str": "", "bool": False, "MemoryState": {}, "SlipState": {"count": 0, "last": ""}}


def plain_status(**changes: object) -> dict[str, object]:
    """A status as it lies in its file, with these fields; all others are empty."""
    plain: dict[str, object] = {each.name: _EMPTY.get(str(each.type)) for each in fields(Status)}
    memory = {each.name: 0 for each in fields(MemoryState)} | {"is_full": False}
    return plain | {"pid": PID, "is_admitted": True, "memory": memory} | changes


@dataclass
class MadeNode:
    """What lies in ``directory`` after some steps of some authors; author 0 is the node itself."""

    directory: Path
    manifest: Manifest = field(default_factory=lambda: small_manifest(steps=400))
    tail: LogTail = field(default_factory=LogTail)
    neighbours: list[dict[str, object]] = field(default_factory=list)
    ledger: Ledger | None = None

    def advance(self, step: int, authors: int = 4, **status: object) -> None:
        """Author ``a`` has signed the steps from 20 a to ``step``; every tenth step was evaluated."""
        records = [seal(self.manifest, author, at) for author in range(authors) for at in range(20 * author, step)]
        self.ledger = ledger_of(self.manifest, records)
        done = [EvaluatedStep(step=at, accuracy=0.5 + at / 1_000, loss=0.7 - at / 900, rows=64) for at in _tens(step)]
        write_evaluations(self.directory, done)
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
        store = Store(self.directory, sign_manifest(self.manifest, OWNER))
        store.add(self.ledger.slots.ordered_records(), is_durable=False)
        store.close()

    def page(self) -> Page:
        """The page of the node while it runs."""
        source = PageSource(ledger=lambda: self.ledger, pid=PID, tail=self.tail)
        return Page(self.directory, self.manifest, source)


def _tens(step: int) -> range:
    return range(0, step + 1, 10)


def _detail(step: int, peers: Sequence[dict[str, object]]) -> dict[str, object]:
    plain: dict[str, object] = {each.name: _EMPTY.get(str(each.type)) for each in fields(StatusDetail)}
    losses = [{"step": at, "loss": 0.72 - at / 900} for at in range(0, step, 5)]
    lists = {"peers": list(peers), "evaluations": [], "losses": losses, "news": []}
    return plain | lists | {"steps_per_s": 2.5, "left_s": (400 - step) / 2.5}


def _linked(author: int, *, is_first: bool) -> dict[str, object]:
    plain: dict[str, object] = {each.name: _EMPTY.get(str(each.type)) for each in fields(PeerState)}
    peer, address = str(peer_of_author(signer(author).author)), f"/ip4/203.0.113.{author}/tcp/4001"
    return plain | {
        "peer": peer,
        "address": address,
        "is_outbound": is_first,
        "rtt_ms": 12.5,
        "updates": 100,
        "is_equal": is_first,
    }
