"""`sfnode run invite`: strings to join and their QR codes; and what a join says of a string before it asks anybody."""

from __future__ import annotations

import io
import json
import stat
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from protocol.ledger.roster import Roster
from protocol.run.invitation import read_invitation
from protocol.run.manifest import sign_manifest
from sfnode.cli.inviting import qr_lines
from sfnode.cli.joining import node_run
from sfnode.network.policy.addresses import parse_bootstrap
from sfnode.reporter import Reporter
from sfnode.run.default_directory import find_data_directory
from sfnode.run.node_options import JoinOptions, RunSource
from sfnode.run.run_address import RunAddress, join_string, parse_run_addresses
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.cli.test_admission import ALICE, BOB, INVITED, LISTED, OPEN, Place
from tests.support.cli_calls import Outcome, assert_teaches, call, signals_as_they_were
from tests.support.ledgers import signer
from tests.support.manifests import OWNER
from tests.support.statuses import STATUS, changed
from tests.support.tiny_models import write_reviews

PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
NODE = parse_bootstrap(f"/ip4/203.0.113.7/tcp/4001/p2p/{PEER}")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, INVITED)


def invite(place: Place, *arguments: object) -> Outcome:
    return call("run", "invite", "--owner-key", place.key, "--run", place.run, *arguments)


def test_join__key_file_in_place_of_a_string_or_invitation__its_secret_is_not_shown(
    place: Place, tmp_path: Path
) -> None:
    """`join @my.key` printed the owner's whole secret key, and `--invite @my.key` a third of it."""
    (key := tmp_path / "a.key").write_text(secret := "0123456789abcdef" * 4)
    rows = write_reviews(tmp_path / "rows.jsonl")
    join = ("join", "--run", place.run, "--data", rows, "--data-dir", tmp_path / "node")
    for arguments in (("join", f"@{key}"), (*join, "--invite", f"@{key}"), (*join, "--invite", secret)):
        outcome = call(*arguments)
        assert outcome.code == 1 and "Error: " in outcome.stderr
        assert secret[:10] not in outcome.stderr + outcome.stdout
    assert_teaches(call(*join, "--invite", "my.invite"), "--invite: not a whole invitation", "--invite @FILE")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", "on this machine (for others it needs a network, and --listen"),
        ("192.168.1.7", "on your own network (--announce"),
        ("203.0.113.7", ""),
    ],
)
def test_run_invite__node_that_not_all_can_dial__says_from_where_the_string_works(
    host: str, said: str, place: Place
) -> None:
    """An owner sent strings with 127.0.0.1 in them, and nobody could join; nothing had said so."""
    outcome = invite(place, "--at", str(NODE).replace("203.0.113.7", host))
    assert outcome.code == 0 and outcome.stdout.startswith("sfnode:v1.")
    assert said in outcome.stderr if said else outcome.stderr == ""


def test_run_invite__node_is_named__each_string_joins_one_author(place: Place) -> None:
    told = json.loads(invite(place, "--count", 2, "--at", NODE, "--json").stdout)
    first, second = (parse_run_addresses([string]) for string in told["strings"])
    assert [first.invitation, second.invitation] == told["invitations"] and first.invitation != second.invitation
    assert (first.run_id, first.nodes, first.run_data_bytes) == (INVITED.run_id, (NODE,), 0)
    roster = Roster(INVITED)
    roster.add(roster.codec.claim(read_invitation(first.invitation), ALICE))
    assert roster.is_admitted(ALICE)


def test_run_invite__for_a_class__one_string_joins_as_many_and_no_more(place: Place) -> None:
    (string,) = json.loads(invite(place, "--uses", 3, "--at", NODE, "--json").stdout)["strings"]
    invitation = read_invitation(parse_run_addresses([string]).invitation)
    roster = Roster(place.manifest)
    authors = [signer(number).author for number in range(4)]
    for author in authors[:3]:
        roster.add(roster.codec.claim(invitation, author))
    assert all(roster.is_admitted(author) for author in authors[:3])
    roster.add(roster.codec.claim(invitation, authors[3]))
    assert not any(roster.is_admitted(author) for author in authors)


def test_run_invite__for_ann__she_is_excluded_by_that_name(place: Place) -> None:
    given = ("--owner-key", place.key, "--data-dir", place.data_dir)
    (text,) = json.loads(call("run", "invite", "--for", "Ann", *given, "--json").stdout)["invitations"]
    codec = Roster(place.manifest).codec
    DataDirectory(place.data_dir).statements.submit([codec.claim(read_invitation(text), ALICE)])
    assert_teaches(call("run", "exclude", "Bob", "--from-step", 0, *given), "Bob", "sfnode run show")
    assert f"excluded {ALICE.hex()[:16]}" in call("run", "exclude", "ann", "--from-step", 0, *given).stdout
    assert codec.exclude(OWNER, ALICE, 0) in place.waiting()


def test_run_invite__for_several_people_or_nowhere__is_refused(place: Place) -> None:
    assert_teaches(invite(place, "--for", "Ann"), "--for", "--data-dir")
    given = ("run", "invite", "--for", "Ann", "--owner-key", place.key, "--data-dir", place.data_dir)
    assert_teaches(call(*given, "--count", 2), "--for", "one person")


def test_run_invite__no_node_is_known__prints_the_bare_invitation(place: Place) -> None:
    assert invite(place).stdout.startswith("invite:")
    assert_teaches(invite(place, "--qr"), "--at", "--data-dir")


def test_run_invite__run_file_of_a_node_that_runs_here__makes_a_string(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sfnode init` prints this command, and promised strings by it."""
    monkeypatch.setenv("HOME", str(place.folder))
    node = find_data_directory(place.manifest, None)
    here = join_string(RunAddress(run_id=INVITED.run_id, nodes=(NODE,), run_model="m", run_data="private"))
    with closing(Store(node, sign_manifest(place.manifest, OWNER))):
        node.status_file.write_text(json.dumps(changed(STATUS, time=time.time(), join_string=here).to_json()))
        string = invite(place, "--for", "Ann").stdout.strip()
    assert parse_run_addresses([string]).nodes == (NODE,) and parse_run_addresses([string]).invitation
    assert invite(place).stdout.startswith("invite:")  # it has stopped


def test_run_admit__node_of_another_run__is_refused_and_its_old_mistakes_stop_nobody(tmp_path: Path) -> None:
    """Both runs were mixed with exit code 0, and while the node was stopped, no later statement reached it."""
    listed = Place(tmp_path, LISTED)
    (listed.folder / "other").mkdir()
    other = Place(listed.folder / "other", INVITED)
    admitted = ("run", "admit", ALICE.hex(), "--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert_teaches(call(*admitted, "--run", other.run), "belongs to run", "--data-dir")
    assert listed.waiting() == []
    DataDirectory(listed.data_dir).statements.submit([Roster(INVITED).codec.admit(OWNER, BOB)])
    assert call(*admitted).code == 0


def test_run_invite__open_or_listed_run__a_string_without_an_invitation(tmp_path: Path) -> None:
    for kind, manifest in (("open", OPEN), ("listed", LISTED)):
        (tmp_path / kind).mkdir()
        place = Place(tmp_path / kind, manifest)
        assert parse_run_addresses([invite(place, "--at", NODE).stdout.strip()]).invitation == ""
        assert_teaches(invite(place), "invite run", "--at")


def test_run_invite__address_of_another_run__is_refused(place: Place) -> None:
    other = RunAddress(run_id=OPEN.run_id, nodes=(NODE,))
    assert_teaches(invite(place, "--at", other), "--at", "another run")


def test_run_invite__picture__is_for_the_user_alone_and_one(place: Place) -> None:
    svg = place.folder / "invitation.svg"
    assert invite(place, "--at", NODE, "--svg", svg).code == 0
    assert svg.read_text().startswith("<?xml") and stat.S_IMODE(svg.stat().st_mode) == 0o600
    assert_teaches(invite(place, "--at", NODE, "--svg", place.folder / "two.svg", "--count", 2), "--svg", "--count")


def test_qr__of_a_whole_string__fits_into_a_terminal(place: Place) -> None:
    printed = invite(place, "--at", NODE, "--qr").stdout.splitlines()
    string, code = printed[0], printed[1:]
    assert code == qr_lines(string) and set("".join(code)) <= set("█▀▄ ")
    assert len({len(line) for line in code}) == 1 and len(code[0]) <= 80
    assert invite(place, "--at", NODE, "--no-qr").stdout.count("\n") == 1


def test_join__two_invitations__says_which_to_leave_out(place: Place) -> None:
    texts = json.loads(invite(place, "--count", 2, "--json").stdout)["invitations"]
    told = RunAddress(
        run_id=INVITED.run_id, nodes=(NODE,), invitation=texts[0], run_model="m", run_data="embedded:reviews"
    )
    outcome = call("join", join_string(told), "--invite", texts[1])
    assert_teaches(outcome, "--invite", "leave --invite out")


def test_join__string_is_cut_off__nobody_is_asked(place: Place) -> None:
    told = RunAddress(run_id=INVITED.run_id, nodes=(NODE,), run_model="m", run_data="private")
    assert_teaches(call("join", join_string(told)[:80]), "cut off after 80")


def test_join__error_while_a_line_of_progress_is_open__stands_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()

    def fail_after_progress(
        _run: object, _options: JoinOptions, _given: object, reporter: Reporter, _life: object
    ) -> None:
        reporter.progress("progress", "step 0/40")
        raise OperatorError("the wrong model")

    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(trio, "run", fail_after_progress)
    with pytest.raises(OperatorError, match="the wrong model"), signals_as_they_were():
        node_run.run_node(JoinOptions(source=RunSource()), frozenset(), "info", is_json=False, is_verbose=False)
    assert screen.getvalue().endswith("step 0/40\n")
