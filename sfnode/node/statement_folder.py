"""The folder where an operator's commands leave statements for a running node: each goes through the node's door."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from protocol.errors import OperatorError
from protocol.events import Event, StatementSubmitted
from protocol.ledger import Statement
from protocol.node import Node
from protocol.run import Manifest
from sfnode.reporter import Reporter, counted
from sfnode.storage import read_statements_file, remove, waiting

_LOOK_S: Final = 1.0


class StatementFolder:
    """Looks into it every second."""

    def __init__(self, manifest: Manifest, data_dir: Path, node: Node, reporter: Reporter) -> None:
        self._manifest, self._data_dir = manifest, data_dir
        self._node, self._reporter = node, reporter

    async def run(self, inbox: trio.MemorySendChannel[Event]) -> None:
        """Hand statements over, until cancelled; a file is put away once all that is in it is durable."""
        while True:
            for path in waiting(self._data_dir):
                for statement in self._read(path):
                    await inbox.send(StatementSubmitted(statement=statement.data))
            await trio.sleep(_LOOK_S)

    def _read(self, path: Path) -> list[Statement]:
        """Those of a file that the node does not hold yet; a file without any is put away."""
        try:
            found = read_statements_file(self._manifest, path)
        except OperatorError as error:
            self._reporter.event("statements_refused", str(error), file=str(path))
            remove(path, is_refused=True)
            return []
        roster = self._node.replica.ledger.roster
        fresh = [statement for statement in found if not roster.covers(statement)]
        if not fresh:
            vain = sum(all(held.data != each.data for held in roster.held(each.key)) for each in found)
            text = f"took in {counted(len(found), 'statement')} of {path.name}"
            if vain:  # by another way, perhaps from another machine of the owner's, came one that says more
                text += f"; {vain} of them changed nothing, since others that the owner has signed say more"
            self._reporter.event("statements_taken", text, file=str(path))
            remove(path)
        return fresh
