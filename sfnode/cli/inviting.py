"""Invite: the strings that `sfnode run invite` prints, its options and QR codes; hand signed statements to a node."""

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click
import segno

from protocol.errors import Ignore, OperatorError
from protocol.ledger import Roster, Statement, StatementKind
from protocol.limits import TOKEN_USES_MAX
from protocol.run import Manifest
from sfnode.cli.option_values import NewFilePath
from sfnode.cli.options import group_of_fields
from sfnode.network import policy
from sfnode.run import RunAddress, option_field, run_address
from sfnode.status import read_status
from sfnode.storage import DataDirectory, disk, read_statements_file

_BORDER = 2  # modules; the standard asks for four, but phones read two, which fit a narrow terminal
_SVG_SCALE = 6  # pixels for each module: some 400 in all, enough for a phone in front of a screen
# A dark module has the terminal's background colour, a light one its text colour.
_BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteOptions:
    """Holds the options of `sfnode run invite`.

    Attributes:
        is_qr: also print a QR code of each string; None: if a terminal can show it.
        svg: file for the QR code; only with one string.
    """

    count: int = option_field.given(1, "Print this many invitations.", bounds=(1, 10_000))
    uses: int = option_field.given(
        1, "Let this many people use the same invitation, as a class does.", bounds=(1, TOKEN_USES_MAX)
    )
    name: str | None = option_field.given(
        None,
        "Show this name, on this machine only, for the person who uses the invitation.",
        form=("NAME", policy.node_names.parse_name),
        name="--for",
    )
    at: tuple[str, ...] = option_field.given(
        (),
        f"Say in the string that the run is at this address of a node. {option_field.REPEAT}  "
        "[default: that of the node on --data-dir, if it runs]",
    )
    is_qr: bool | None = None
    svg: Path | None = None


invite_options = group_of_fields(
    "options",
    InviteOptions,
    is_qr=click.option(
        "--qr/--no-qr", "is_qr", default=None, help="Print a QR code of each string, too.  [default: on a terminal]"
    ),
    svg=click.option("--svg", type=NewFilePath, help="Write the QR code of the string to this file, as a picture."),
)


def strings_for(
    manifest: Manifest, invitations: Sequence[str], options: InviteOptions, data_dir: DataDirectory | None
) -> list[str]:
    """Return a string to join for each invitation; empty where no node is known. Raises OperatorError."""
    address = _address(manifest, options.at, data_dir)
    if address is not None and address.bounds:
        click.echo(f"Note: the string works {address.bounds}", err=True)
    if address is None:
        if options.svg is not None or options.is_qr:
            raise OperatorError(
                "a QR code holds a string to join, which says where the run is: name a node with --at, or give the "
                "--data-dir of one that runs and has --listen"
            )
        return []
    return [run_address.join_string(replace(address, invitation=invitation)) for invitation in invitations]


def _address(manifest: Manifest, at: Sequence[str], data_dir: DataDirectory | None) -> RunAddress | None:
    """Return the run's address and facts from --at or the running node of ``data_dir``; None without either.

    OperatorError: an address of --at is malformed, or of another run.
    """
    string = read_status(data_dir).life.join_string if data_dir is not None and data_dir.is_locked() else ""
    running = run_address.parse_run_addresses([string]) if string else None
    if not at:
        return running
    given = run_address.parse_run_addresses(at)
    if given.run_id not in (None, manifest.run_id):
        raise OperatorError("--at is an address of another run: give that of a node of this one")
    known = running or RunAddress(run_id=manifest.run_id, run_model=manifest.model.id, run_data=manifest.task.data)
    return replace(known, nodes=given.nodes)


def held_roster(data_dir: DataDirectory, manifest: Manifest) -> Roster:
    """Return the roster from the statements that a node holds and those that wait for it and can be read.

    Raises OperatorError, StorageDamagedError.
    """
    roster = Roster(manifest)
    found: list[bytes] = []
    if data_dir.ledger_file.exists():
        with data_dir.reading() as records:
            found += records.statements()
    for path in data_dir.statements.waiting():
        with suppress(OperatorError):  # the node has just taken it in, or will refuse it
            found += [statement.data for statement in read_statements_file(manifest, path)]
    for data in found:
        with suppress(Ignore):
            roster.add(data)
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


def is_qr_shown() -> bool:
    """Return whether standard output is a terminal that can show the block characters."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")


def qr_lines(string: str) -> list[str]:
    """Return the code as lines of half blocks, some 65 columns wide, for a terminal with light text on dark."""
    rows = [list(row) for row in _code(string).matrix_iter(border=_BORDER)]
    rows += [[0] * len(rows[0])] * (len(rows) % 2)
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(_BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(*pair, strict=True)) for pair in pairs]


def write_svg(string: str, path: Path) -> None:
    """Write the code as an SVG file with mode 0600, because an invitation is a secret. Raises OperatorError."""
    picture = io.BytesIO()
    _code(string).save(picture, kind="svg", scale=_SVG_SCALE, light="white")
    disk.write_new(path, [picture.getvalue()], mode=0o600)


def _code(string: str) -> segno.QRCode:
    """Return the QR code in upper case, which takes a third less room; readers of the string ignore case."""
    return segno.make_qr(string.upper(), error="l")
