"""Builds a replica from what a node has stored, and says which record of a damaged database cannot be right."""

from collections.abc import Iterable
from pathlib import Path

from protocol.errors import Ignore, IgnoreReason, Reject
from protocol.state import Replica
from sfnode.storage.sqlite_errors import damaged


def replay_statements(replica: Replica, statements: Iterable[bytes], path: Path) -> None:
    """Pass stored statements to ``replica``, before any record. StorageDamagedError if one is rejected."""
    for statement in statements:
        try:
            replica.add_statement(statement)
        except Reject as reject:
            raise damaged(path, f"a statement: {reject}") from None
        except Ignore:
            continue  # a later exclusion from an earlier step replaced it, or a crash left it twice


def replay(replica: Replica, records: Iterable[tuple[int, bytes]], path: Path) -> Replica:
    """Pass stored records to ``replica``, and return it. StorageDamagedError names the first that is rejected."""
    for arrival, record in records:
        try:
            _replay_one(replica, record)
        except Reject as reject:
            raise damaged(path, f"record {arrival}: {reject}") from None
    return replica


def _replay_one(replica: Replica, record: bytes) -> None:
    try:
        replica.add(record)
    except Ignore as ignore:  # excluded since, or stored twice by a crash between commit and memory
        if ignore.reason is IgnoreReason.NOT_ADMITTED:  # its author was admitted once: otherwise it would not be stored
            replica.suspend(record)
