"""What the tables of the reader's switches say; tests that need the reader are skipped where it cannot run."""

from __future__ import annotations

import pytest

from tests.conformance.reader import node_fault, run_reader


def need_node() -> None:
    """Skip the test, and say why, on a machine without a usable Node.js."""
    if fault := node_fault():
        pytest.skip(fault)


def rules_switched_off(script: str) -> list[str]:
    """The rules of all switches of one table, each of which a vector has noticed."""
    need_node()
    finished = run_reader(script)
    *table, last = finished.stdout.splitlines()
    assert finished.returncode == 0, [line for line in table if "NOT NOTICED" in line or "BROKEN" in line]
    assert last == f"switches: {len(table)} of {len(table)} are noticed by a vector"
    return [line.split(" | ")[0] for line in table]
