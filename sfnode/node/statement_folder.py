"""The folder where commands leave statements for a running node, which checks each like any other statement."""

from pathlib import Path
from typing import Final

import trio

from protocol.errors import OperatorError
from protocol.events import Event, StatementSubmitted
from protocol.ledger import Statement
from protocol.node import Node
from protocol.run import Manifest
from sfnode.reporter import Reporter, counted
from sfnode.storage import DataDirectory, read_statements_file

_LOOK_S: Final = 1.0


class StatementFolder:
    """Looks into the folder every second, and submits its statements to the node."""

    def __init__(self, manifest: Manifest, data_dir: DataDirectory, node: Node, reporter: Reporter) -> None:
        self._manifest, self._files = manifest, data_dir.statements
        self._node, self._reporter = node, reporter

    async def run(self, inbox: trio.MemorySendChannel[Event]) -> None:
        """Submit statements until cancelled; put a file away once all its statements are durable."""
        while True:
            for path in self._files.waiting():
                for statement in self._read(path):
                    await inbox.send(StatementSubmitted(statement=statement.data))
            await trio.sleep(_LOOK_S)

    def _read(self, path: Path) -> list[Statement]:
        """Return the statements of a file that the node does not hold yet; put the file away if there are none."""
        try:
            found = read_statements_file(self._manifest, path)
        except OperatorError as error:
            self._reporter.event("statements_refused", str(error), file=str(path))
            self._files.put_away(path, is_refused=True)
            return []
        roster = self._node.replica.ledger.roster
        fresh = [statement for statement in found if not roster.covers(statement)]
        if not fresh:
            vain = sum(all(held.data != each.data for held in roster.held(each.key)) for each in found)
            text = f"took in {counted(len(found), 'statement')} of {path.name}"
            if vain:  # a statement that says more came another way, perhaps from another machine of the owner
                text += f"; {vain} of them changed nothing, since others that the owner has signed say more"
            self._reporter.event("statements_taken", text, file=str(path))
            self._files.put_away(path)
        return fresh
