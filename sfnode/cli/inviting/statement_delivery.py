"""Hand signed statements to a node, unless they would have no effect."""

from collections.abc import Sequence
from pathlib import Path

from protocol.errors import Ignore, OperatorError
from protocol.ledger import Roster, Statement, StatementKind
from protocol.run import Manifest
from sfnode.storage import DataDirectory, read_statements_file


def held_roster(data_dir: DataDirectory, manifest: Manifest) -> Roster:
    """Return the roster from the statements that a node holds and those that wait for it.

    Raises OperatorError, StorageDamagedError.
    """
    roster = Roster(manifest)
    stored: list[bytes] = []
    if data_dir.ledger_file.exists():
        with data_dir.reading() as records:
            stored = records.statements()
    waiting = [each for path in data_dir.statements.waiting() for each in read_statements_file(manifest, path)]
    for data in (*stored, *(statement.data for statement in waiting)):
        try:
            roster.add(data)
        except Ignore:
            continue
    return roster


def hand_to_node(
    data_dir: DataDirectory, manifest: Manifest, statements: Sequence[bytes], *, is_asked: bool
) -> tuple[Path | None, int]:
    """Leave statements in a file for a node; return the file (None where all are held already) and how many are new.

    Raises OperatorError and leaves none where one would have no effect: an exclusion from a later step than the one
    that holds, or an admission of an excluded author. Unless ``is_asked``, those that are held already may be there.
    """
    roster = held_roster(data_dir, manifest)
    found = [roster.codec.decode_untrusted(data) for data in statements]
    for statement in found:
        if is_asked or statement.data not in {held.data for held in roster.held(statement.key)}:
            check_has_effect(roster, statement)
    fresh = [statement.data for statement in found if not roster.covers(statement)]
    return (data_dir.statements.submit(fresh) if fresh else None), len(fresh)


def check_has_effect(roster: Roster, statement: Statement) -> None:
    """Refuse a statement that nodes would ignore. Raises OperatorError."""
    name, from_step = statement.author.hex()[:16], roster.excluded_from(statement.author)
    match statement.kind:
        case StatementKind.EXCLUDE if from_step is not None and from_step < statement.from_step:
            text = f"author {name} is excluded from step {from_step} on already, and for good"
            raise OperatorError(f"{text}: from step {statement.from_step} on changes nothing")
        case StatementKind.ADMIT if from_step is not None:
            text = f"author {name} is excluded from step {from_step} on, for good: to admit them changes nothing"
            raise OperatorError(f"{text}. They need a new key: `sfnode id new`, or a new data directory")
        case _:
            pass
