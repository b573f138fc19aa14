"""A process test that fails says what its nodes said: from another machine nothing else is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import JoinProcess
from tests.support.running_nodes import Joins, showing_logs


def test_failure__of_a_test_with_nodes__shows_the_ends_of_their_logs(tmp_path: Path) -> None:
    """CI knew of a node that it had left with 1, and not why."""
    node = JoinProcess(directory=tmp_path / "node", arguments=[])
    node.logs.append(tmp_path / "node.log")
    node.logs[0].write_text("x" * 5_000 + "\nAborted!\n")
    with pytest.raises(AssertionError) as failed, showing_logs([node]):
        raise AssertionError("no peer")
    (note,) = failed.value.__notes__
    assert note.startswith("--- node.log, exit code None:\nxxx") and note.endswith("\nAborted!\n") and len(note) < 3_000
    joins = Joins(tmp_path)
    joins._nodes.append(node)
    with pytest.raises(AssertionError, match="no peer") as failed, joins:
        raise AssertionError("no peer")
    assert failed.value.__notes__ == [note]
