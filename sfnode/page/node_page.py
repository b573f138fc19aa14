"""What one node's page shows, as sections of plain values: of a node that runs, or of what it has left on the disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from protocol.ledger import Ledger
from protocol.run import Manifest
from sfnode import __version__
from sfnode.page.contributions import Contribution, contributions
from sfnode.page.log_tail import LogTail
from sfnode.page.loss_history import LossHistory
from sfnode.page.run_facts import run_facts
from sfnode.status import Status, describe_end, judge, last_status
from sfnode.storage import best_of, has_become_worse, read_evaluations

AUTHORS_MAX: Final = 60  # most updates first; the page says how many more there are

_NOT_SHOWN: Final = frozenset({"join", "pid"})  # an address of the run may hold an invitation

Sections = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPeer:
    """A neighbour now.

    Attributes:
        author: its key, in hex.
        address: where we reached it, or the IP address that it came from.
        delay_ms: there and back; None until it is known.
        updates: that it held when it told last; None: it has told nothing yet.
        is_equal: whether it then held the very updates that this node holds now.
    """

    author: str
    address: str
    is_outbound: bool
    delay_ms: float | None
    updates: int | None
    is_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSource:
    """What the page cannot read from the data directory.

    Attributes:
        ledger: the node's; None while it is being read.
        pid: of the node's process, whose status counts; None: no node, whatever the last one wrote counts.
        neighbours: those of now.
        tail: what the node has said.
    """

    ledger: Callable[[], Ledger | None]
    pid: int | None = None
    neighbours: Callable[[], Sequence[LinkedPeer]] = tuple
    tail: LogTail = field(default_factory=LogTail)


class Page:
    """The page of the node of one data directory."""

    def __init__(self, directory: Path, manifest: Manifest, source: PageSource) -> None:
        self._directory, self._manifest, self._source = directory, manifest, source
        self._losses = LossHistory()

    def look(self) -> None:
        """Remember the training loss of now: call it once a second."""
        status = self._status()
        if status is not None and status.loss is not None:
            self._losses.take(status.step, status.loss)

    def sections(self) -> Sections:
        """By their names; each is JSON. Milliseconds."""
        status = self._status()
        return {
            "run": self._run(),
            "status": None if status is None else _status(status),
            "evaluations": self._evaluations(),
            "losses": self._losses.points,
            **self._authors(status),
            "neighbours": [dataclasses.asdict(each) for each in self._source.neighbours()],
            "log": self._source.tail.lines,
        }

    def _status(self) -> Status | None:
        """The last that was written, if it can be read and is of the right process."""
        status = last_status(self._directory)
        return status if status is not None and self._source.pid in (None, status.pid) else None

    def _run(self) -> Sections:
        manifest = self._manifest
        return {
            "name": manifest.name,
            "id": manifest.run_id.hex(),
            "steps": manifest.steps,
            "is_live": self._source.pid is not None,
            "version": __version__,
            "facts": run_facts(manifest),
        }

    def _evaluations(self) -> Sections:
        try:
            found = read_evaluations(self._directory)
        except OperatorError:
            found = []
        best = best_of(found)
        return {
            "points": [(each.step, round(each.loss, 5), round(each.accuracy, 5)) for each in found],
            "best_step": None if best is None else best.step,
            "is_worse": has_become_worse(found),
        }

    def _authors(self, status: Status | None) -> Sections:
        ledger = self._source.ledger()
        found = [] if ledger is None else contributions(ledger, self._manifest)
        own = "" if status is None else status.author
        return {"authors": [_author(each, own) for each in _shown(found, own)], "authors_in_all": len(found)}


def _shown(found: Sequence[Contribution], own: str) -> list[Contribution]:
    """The first ones, and this node's in any case."""
    later = [each for each in found[AUTHORS_MAX:] if each.author.hex() == own]
    return [*found[: AUTHORS_MAX - len(later)], *later]


def _status(status: Status) -> Sections:
    shown = {name: value for name, value in dataclasses.asdict(status).items() if name not in _NOT_SHOWN}
    _, trouble = judge(status)
    return {**shown, "words": {"trouble": trouble, "end": describe_end(status)}}


def _author(each: Contribution, own: str) -> Sections:
    return {
        "author": each.author.hex(),
        "is_own": each.author.hex() == own,
        "updates": each.updates,
        "void_slots": each.void_slots,
        "last_step": each.last_step,
        "excluded_from": each.excluded_from,
        "cells": each.cells,
    }
