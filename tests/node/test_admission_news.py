"""What a node says of its own admission: a used invitation by its name, and nothing before it can be known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from protocol.ledger.roster import Roster
from protocol.ledger.statements import StatementCodec
from protocol.run.invitation import read_invitation
from protocol.run.manifest import Manifest
from sfnode.keys import claim_invitation
from sfnode.node.watching.network_news import AdmissionNews
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from tests.cli.test_commands import STATUS
from tests.support.ledgers import claim, signer
from tests.support.manifests import OWNER, small_manifest
from tests.support.statuses import changed

RUN: Manifest = small_manifest(admission="invite")
SEED_3 = b"author" + (3).to_bytes(26, "big")  # of `signer(3)`
INVITATION = StatementCodec(RUN).invite(OWNER, b"\5" * 32).text
REFUSED: dict[str, Any] = {"is_admitted": False, "admission": "invite", "peers": 1, "expects_peers": True}


def claimed_by(*authors: int) -> Roster:
    """The roster after these authors have used the invitation."""
    roster = Roster(RUN)
    for author in authors:
        roster.add(roster.codec.claim(read_invitation(INVITATION), signer(author).author))
    return roster


def is_named_used(folder: Path, roster: Roster, author: int) -> bool:
    claim = DataDirectory(folder).statements.own_claim(RUN)
    return roster.statistics(signer(author).author, claim).is_invitation_used


@pytest.mark.parametrize(("others", "is_used"), [((), False), ((1,), True), ((1, 2), True)])
def test_invitation__used_by_others_before__is_named_as_used(
    others: tuple[int, ...], is_used: bool, tmp_path: Path
) -> None:
    claim_invitation(RUN, INVITATION, SEED_3, DataDirectory(tmp_path))
    roster = claimed_by(*others)
    if len(others) < 2:  # the third claim is not kept: nothing follows from it
        roster.add(roster.codec.claim(read_invitation(INVITATION), signer(3).author))
    assert is_named_used(tmp_path, roster, 3) == is_used


def test_invitation__none_was_given__nothing_is_named(tmp_path: Path) -> None:
    assert DataDirectory(tmp_path).statements.own_claim(RUN) is None
    assert not is_named_used(tmp_path, claimed_by(1, 2), 3)


def said(folder: Path, *looks: tuple[dict[str, Any], bool]) -> list[str]:
    """What is told at these looks: changes of the status, and whether all that neighbours had is here."""
    screen = io.StringIO()
    news = AdmissionNews(DataDirectory(folder), Reporter(stream=screen))
    for changes, is_live in looks:
        news.look(changed(STATUS, **{**REFUSED, **changes}), is_live=is_live)
    return screen.getvalue().splitlines()


def test_admission__before_the_neighbours_were_heard__nothing_is_said(tmp_path: Path) -> None:
    assert said(tmp_path, ({"peers": 0}, False), ({}, False), ({"is_admitted": True}, True)) == []


def test_admission__neighbours_know_of_none__is_said_once(tmp_path: Path) -> None:
    lines = said(tmp_path, ({}, True), ({}, True), ({"is_admitted": True}, True))
    assert len(lines) == 2 and "not admitted" in lines[0] and lines[1] == "admitted"


def test_admission__nobody_to_hear_from__is_said(tmp_path: Path) -> None:
    assert len(said(tmp_path, ({"peers": 0, "expects_peers": False}, False))) == 1


def test_admission__statement_lies_in_the_folder__nothing_is_said(tmp_path: Path) -> None:
    DataDirectory(tmp_path).statements.submit([claim(RUN, 1, 3)])
    assert said(tmp_path, ({}, True)) == []
    for path in DataDirectory(tmp_path).statements.waiting():
        DataDirectory(tmp_path).statements.put_away(path)
    assert len(said(tmp_path, ({}, True))) == 1


def test_admission__relay__is_told_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, ({"is_training": False}, True)) == []
