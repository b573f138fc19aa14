"""Looks at a running node every second: status file, progress line, news for the operator, and the end of the run."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import trio

from protocol.errors import UnsettledError
from sfnode.node.watching.catch_up import CatchUpMonitor, Gap
from sfnode.node.watching.network_news import AdmissionNews, NetworkNews
from sfnode.node.watching.status_file import StatusWriter
from sfnode.status import Status, describe_end

if TYPE_CHECKING:
    from sfnode.node.running_node import RunningNode

_LOOK_S: Final = 1.0
_PEERS_SAVED_S: Final = 5.0  # a node killed earlier has forgotten the first peers that it met


class NodeWatch:
    """Watches one life of a node. A look that raises is skipped, and the next one comes a second later."""

    def __init__(self, life: RunningNode, news: NetworkNews) -> None:
        self._life = life
        self._news = news
        self._admission_news = AdmissionNews(life.config.data_dir, life.reporter)
        self._catch_up = CatchUpMonitor()
        self._peers_saved_s = 0.0

    async def run(self, scope: trio.CancelScope) -> None:
        """Look until cancelled. Cancel ``scope`` at the end of the run if the config says so.

        UnsettledError: the wait for other nodes was given up.
        """
        life, writer = self._life, None
        while True:
            with life.slips.contained("status"):
                writer = writer or self._writer()
                self._look(writer, scope)
            await trio.sleep(_LOOK_S)

    def _writer(self) -> StatusWriter:
        life = self._life
        claim = life.config.data_dir.statements.own_claim(life.manifest)
        path = life.config.data_dir.status_file
        return StatusWriter(path, os.getpid(), life.reporter, claim, life.data_sharing.bytes)

    def _look(self, writer: StatusWriter, scope: trio.CancelScope) -> None:
        life = self._life
        status, line = writer.write(life)
        life.reporter.progress("progress", line, **asdict(status))
        gap = Gap(time=status.time, held=status.updates, wanted=status.catching_up)
        if (outrun := self._catch_up.look(gap)) is not None:
            life.reporter.event("outrun", str(outrun), **asdict(outrun))
        self._news.look(life.network)
        self._admission_news.look(status, is_live=life.node.sync.is_live)
        if trio.current_time() - self._peers_saved_s >= _PEERS_SAVED_S:
            self._peers_saved_s = trio.current_time()
            life.save_peers()
        if life.config.is_exiting_when_finished:
            self._leave_if_over(status, scope)

    def _leave_if_over(self, status: Status, scope: trio.CancelScope) -> None:
        """End the node with the run. UnsettledError: the wait for other nodes was given up."""
        text = f"state digest {status.state_digest}, {describe_end(status)}"
        if status.is_over:
            fields = {"state_digest": status.state_digest, "equal_peers": status.equal_peers}
            self._life.reporter.event("finished", f"the run is finished: {text}", **fields)
            scope.cancel()
        elif self._life.node.end.ending.is_given_up:
            advice = "start the node again without --exit-when-finished, and look at its status"
            raise UnsettledError(f"this node has done its steps, but others may hold another model: {text}; {advice}")
