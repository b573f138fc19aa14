"""``sfnode run``, ``join --invite`` and keys with work: what the owner and those who join type and are told."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.ledger.roster import Roster
from protocol.run.admission import AdmissionKind, AdmissionSpec, work_of
from protocol.run.invitation import read_invitation
from protocol.run.manifest import Manifest, sign_manifest
from sfnode.status import admission_of
from sfnode.storage.data_directory import DataDirectory, decode_run_file
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.storage.statement_files import INBOX_FOLDER, read_statements_file
from tests.cli.test_commands import STATUS
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import DATA
from tests.support.ledgers import admit, exclude, seal, signer
from tests.support.manifests import OWNER, OWNER_SEED, small_manifest
from tests.support.statuses import changed

ALICE, BOB = signer(1).author, signer(2).author


def manifest_of(kind: AdmissionKind, pow_bits: int = 0) -> Manifest:
    return replace(small_manifest(), admission=AdmissionSpec(kind=kind, pow_bits=pow_bits))


OPEN, LISTED, INVITED = map(manifest_of, AdmissionKind)


class Place:
    """The owner's key, a run file and the data directory of a node of that run."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self.folder = folder
        self.key, self.run, self.data_dir = folder / "owner.key", folder / "my.run", folder / "node"
        KeyFile(self.key).store(OWNER_SEED)
        self.run.write_bytes(sign_manifest(manifest, OWNER).encode())
        Store(DataDirectory(self.data_dir), sign_manifest(manifest, OWNER)).close()

    def waiting(self) -> list[bytes]:
        """Statements that the node will find."""
        files = list(DataDirectory(self.data_dir).statements.waiting())
        return [statement.data for path in files for statement in read_statements_file(self.manifest, path)]


@pytest.fixture
def listed(tmp_path: Path) -> Place:
    return Place(tmp_path, LISTED)


# --- the owner's commands


def test_run_admit__several_authors__are_left_for_the_node(listed: Place) -> None:
    outcome = call("run", "admit", ALICE.hex(), BOB.hex(), "--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert outcome.code == 0 and "admitted 2" in outcome.stdout and "next start" in outcome.stdout
    assert listed.waiting() == [admit(LISTED, 1), admit(LISTED, 2)]


def test_run_exclude__into_a_file__any_node_takes_it_by_submit(listed: Place) -> None:
    out = listed.folder / "said.statements"
    excluded = call(
        "run", "exclude", ALICE.hex(), "--from-step", 7, "--owner-key", listed.key, "--run", listed.run, "--out", out
    )
    assert excluded.code == 0 and f"sfnode run submit {out}" in excluded.stdout
    assert listed.waiting() == []
    assert call("run", "submit", out, "--data-dir", listed.data_dir).code == 0
    assert listed.waiting() == [exclude(LISTED, 1, 7)]


def test_run_invite__three__are_different_and_open_the_run_to_one_author_each(tmp_path: Path) -> None:
    place = Place(tmp_path, INVITED)
    outcome = call("run", "invite", "--count", 3, "--owner-key", place.key, "--run", place.run, "--json")
    texts = json.loads(outcome.stdout)["invitations"]
    assert len(set(texts)) == 3
    roster = Roster(INVITED)
    for text, author in zip(texts, (ALICE, BOB, ALICE), strict=True):
        roster.add(roster.codec.claim(read_invitation(text), author))
    assert roster.is_admitted(ALICE) and roster.is_admitted(BOB)


def test_run_show__statements_of_a_node__are_listed(listed: Place) -> None:
    store = Store(DataDirectory(listed.data_dir), sign_manifest(LISTED, OWNER))
    store.add_statements([admit(LISTED, 1), exclude(LISTED, 1, 7)])
    store.close()
    shown = call("run", "show", "--data-dir", listed.data_dir).stdout
    assert shown.startswith(
        f"admit    {ALICE.hex()}\nexclude  {ALICE.hex()}  from step 7\n\nlearns   to answer no or yes"
    )
    document = json.loads(call("run", "show", "--data-dir", listed.data_dir, "--json").stdout)
    assert document["statements"][1] == {"kind": "exclude", "author": ALICE.hex(), "from_step": 7}


def test_run_admit__open_run__says_what_to_do_instead(tmp_path: Path) -> None:
    place = Place(tmp_path, OPEN)
    outcome = call("run", "admit", ALICE.hex(), "--owner-key", place.key, "--data-dir", place.data_dir)
    assert_teaches(outcome, "open", "sfnode run exclude")


def test_run_invite__run_by_list__says_what_it_is(listed: Place) -> None:
    assert_teaches(call("run", "invite", "--owner-key", listed.key, "--run", listed.run), "allow-list", "invite run")


@pytest.mark.parametrize("author", ["", "ab", "zz" * 32, ALICE.hex().upper(), "00" * 32])
def test_run_admit__no_key__is_refused_with_where_to_find_it(author: str, listed: Place) -> None:
    outcome = call("run", "admit", author, "--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert_teaches(outcome, "AUTHOR", "64 lower-case hex digits", "sfnode id show")
    assert listed.waiting() == []


def test_run_exclude__by_another_key__is_refused_with_both(listed: Place) -> None:
    other = listed.folder / "other.key"
    KeyFile(other).store(b"\7" * 32)
    outcome = call("run", "exclude", ALICE.hex(), "--from-step", 0, "--owner-key", other, "--data-dir", listed.data_dir)
    assert_teaches(outcome, str(other), OWNER.author.hex()[:16], "only its owner's statements count")


def test_run_exclude__step_beyond_the_run__is_refused(listed: Place) -> None:
    outcome = call("run", "exclude", ALICE.hex(), "--from-step", 40, "--owner-key", listed.key, "--run", listed.run)
    assert_teaches(outcome, "--from-step 40", "0 to 39")


def test_run_admit__excluded_after_an_admission__is_refused_in_words(listed: Place) -> None:
    given = ("--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert call("run", "admit", ALICE.hex(), *given).code == 0
    told = call("run", "exclude", ALICE.hex(), "--from-step", 5, *given).stdout
    assert "for good" in told and "a new key" in told
    assert_teaches(call("run", "admit", ALICE.hex(), *given), "excluded from step 5", "changes nothing", "a new key")


@pytest.mark.parametrize("answer", ["n", "y"])
def test_run_exclude__on_a_terminal__asks_first(answer: str, listed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(text: str, abort: bool) -> None:
        asked.append(text)
        if answer == "n" and abort:
            raise click.Abort

    monkeypatch.setattr("sfnode.cli.run.can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    given = ("run", "exclude", ALICE.hex(), "--from-step", 5, "--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert call(*given).code == (1 if answer == "n" else 0)
    assert len(asked) == 1 and "for good" in asked[0] and "a new key" in asked[0]
    assert len(listed.waiting()) == (0 if answer == "n" else 1)
    assert call(*given, "--yes").code == 0 and len(asked) == 1


def test_run_admit__nowhere_to_put_it__says_where(listed: Place) -> None:
    assert_teaches(call("run", "admit", ALICE.hex(), "--owner-key", listed.key), "--data-dir", "--run")
    assert_teaches(
        call("run", "admit", ALICE.hex(), "--owner-key", listed.key, "--run", listed.run), "--data-dir", "--out"
    )


def test_run_admit__out_exists__is_not_overwritten(listed: Place) -> None:
    outcome = call("run", "admit", ALICE.hex(), "--owner-key", listed.key, "--run", listed.run, "--out", listed.run)
    assert_teaches(outcome, str(listed.run), "exists")


def test_run_exclude__later_step_than_the_one_that_holds__is_refused_and_nothing_is_left(listed: Place) -> None:
    """It said "took in 1 statement", with exit code 0, and every node passed it over."""
    given = ("--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert call("run", "exclude", ALICE.hex(), "--from-step", 5, *given).code == 0
    before = list(DataDirectory(listed.data_dir).statements.waiting())
    later = call("run", "exclude", ALICE.hex(), "--from-step", 8, *given)
    assert_teaches(later, "excluded from step 5 on already", "from step 8 on changes nothing")
    assert_teaches(call("run", "admit", ALICE.hex(), *given), "excluded from step 5", "a new key")
    assert list(DataDirectory(listed.data_dir).statements.waiting()) == before
    assert call("run", "exclude", ALICE.hex(), "--from-step", 3, *given).code == 0, "from an earlier step on: it holds"


def test_run_admit__same_author_again__is_held_already(listed: Place) -> None:
    given = ("--owner-key", listed.key, "--data-dir", listed.data_dir)
    assert call("run", "admit", ALICE.hex(), *given).code == 0
    again = call("run", "admit", ALICE.hex(), *given)
    assert again.code == 0 and again.stdout == "admitted 1: held already\n"
    both = call("run", "admit", ALICE.hex(), BOB.hex(), *given)
    assert both.stdout.startswith("admitted 2, 1 of them held already\nwritten ")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"nothing\n", ("line 1", "hexadecimal")),
        (admit(LISTED, 1).hex().encode() + b"\n" + admit(INVITED, 1).hex().encode(), ("line 2", "another run")),
        (admit(LISTED, 1)[:-1].hex().encode(), ("line 1", "not a statement")),
    ],
)
def test_run_submit__bad_file__names_the_line(content: bytes, parts: tuple[str, ...], listed: Place) -> None:
    path = listed.folder / "bad.statements"
    path.write_bytes(content)
    assert_teaches(call("run", "submit", path, "--data-dir", listed.data_dir), str(path), *parts)
    assert listed.waiting() == []


# --- a new run

INIT = ("init", "--model", "embedded:tiny-opt", "--task", "embedded:reviews", "--plain")


def test_init__nothing_said__is_by_invitation_with_one_for_the_owners_node(tmp_path: Path) -> None:
    out = tmp_path / "a.run"
    outcome = call(*INIT, "--out", out)
    manifest, text = decode_run_file(out).manifest, (tmp_path / "a.invite").read_text().strip()
    assert (
        f"--invite @{tmp_path / 'a.invite'} --owner-key {tmp_path / 'a.key'} --listen" in outcome.stdout
        and text not in outcome.stdout
    )
    assert manifest.admission == AdmissionSpec(kind=AdmissionKind.INVITE, pow_bits=0)
    roster = Roster(manifest)
    roster.add(roster.codec.claim(read_invitation(text), ALICE))
    assert roster.is_admitted(ALICE) and not roster.is_admitted(BOB)
    assert f"sfnode run invite --owner-key {tmp_path / 'a.key'} --run {out}" in outcome.stdout
    assert "--admission open" in outcome.stdout


def test_init__open__says_what_that_means_and_makes_no_invitation(tmp_path: Path) -> None:
    outcome = call(*INIT, "--out", tmp_path / "a.run", "--admission", "open", "--pow-bits", 3)
    assert decode_run_file(tmp_path / "a.run").manifest.admission == AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=3)
    assert "anybody may contribute" in outcome.stdout and "--invite" not in outcome.stdout
    assert_teaches(call(*INIT, "--out", tmp_path / "b.run", "--pow-bits", 3), "--pow-bits", "--admission open")


# --- who joins


@pytest.mark.parametrize(
    ("manifest", "invite", "parts"),
    [
        (OPEN, "invite:", ("--invite", "open", "Leave it out")),
        (INVITED, "invite:abc", ("--invite", "sfnode run invite")),
    ],
)
def test_join__invitation_that_cannot_be_used__says_why(
    manifest: Manifest, invite: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    place = Place(tmp_path, manifest)
    outcome = call(
        "join", "--run", place.run, "--data-dir", place.data_dir, "--worker-socket", "none", "--model", tmp_path,
        "--data", DATA, "--invite", invite,
    )  # fmt: skip
    assert_teaches(outcome, *parts)


@pytest.mark.parametrize("way", ["file", "standard input"])
def test_join__invitation_from_where_nobody_else_reads_it__is_taken_as_one_that_was_typed(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, INVITED)
    text = Roster(INVITED).codec.invite(Signer(b"\7" * 32), b"\1" * 32).text
    (tmp_path / "invitation").write_text(f"{text}\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
    outcome = call(
        "join", "--run", place.run, "--data-dir", place.data_dir, "--worker-socket", "none", "--model", tmp_path,
        "--data", DATA, "--invite", f"@{tmp_path / 'invitation'}" if way == "file" else "-",
    )  # fmt: skip
    assert_teaches(outcome, "--invite", "owner", "another run")


def test_join__string_in_a_file__is_read_as_one_that_was_typed(tmp_path: Path) -> None:
    string = tmp_path / "string"
    string.write_text("sfnode:v1.mzxw6ytb\nmzxw6ytb\n")
    assert_teaches(call("join", f"@{string}", "--data-dir", tmp_path / "node"), "cut off after 26 of its")
    assert_teaches(call("join", f"@{tmp_path / 'none'}"), "cannot read the string to join", "none", "No such file")
    assert "cut off" in call("doctor", f"@{string}", "--json", "--relay").stdout


def test_join__invitation_by_another_owner__is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, INVITED)
    text = Roster(INVITED).codec.invite(Signer(b"\7" * 32), b"\1" * 32).text
    outcome = call(
        "join", "--run", place.run, "--data-dir", place.data_dir, "--worker-socket", "none", "--model", tmp_path,
        "--data", DATA, "--invite", text,
    )  # fmt: skip
    assert_teaches(outcome, "--invite", "owner", "another run")
    assert list(DataDirectory(place.data_dir).statements.waiting()) == []


def test_join__key_without_work__says_how_much_it_has_and_what_to_do(tmp_path: Path) -> None:
    manifest = manifest_of(AdmissionKind.OPEN, pow_bits=32)
    place = Place(tmp_path, manifest)
    KeyFile(place.data_dir / IDENTITY_FILE).store(b"\1" * 32)
    outcome = call(
        "join", "--run", place.run, "--data-dir", place.data_dir, "--worker-socket", "none", "--model", tmp_path,
        "--data", DATA,
    )  # fmt: skip
    bits = work_of(manifest.run_id, KeyFile(place.data_dir / IDENTITY_FILE).signer().author)
    assert_teaches(outcome, f"has {bits} bits of work", "32", "--relay")


@pytest.mark.parametrize(
    ("manifest", "listen", "is_warned"),
    [
        (OPEN, ("--listen", "/ip4/0.0.0.0/tcp/4001"), True),
        (OPEN, ("--listen", "/ip4/127.0.0.1/tcp/4001", "--announce", "/dns4/node.example.org/tcp/4001"), True),
        (OPEN, ("--listen", "/ip4/192.168.1.7/tcp/4001"), False),
        (OPEN, (), False),
        (manifest_of(AdmissionKind.OPEN, pow_bits=1), ("--listen", "/ip4/0.0.0.0/tcp/4001"), False),
        (INVITED, ("--listen", "/ip4/0.0.0.0/tcp/4001"), False),
    ],
)
def test_join__open_run_at_a_public_address__is_warned_of(
    manifest: Manifest, listen: tuple[str, ...], is_warned: bool, tmp_path: Path
) -> None:
    place = Place(tmp_path, manifest)
    outcome = call(
        "join", "--run", place.run, "--worker-socket", "none", "--data", tmp_path / "none", "--json", *listen
    )
    assert outcome.code == 1
    said = [json.loads(line)["event"] for line in outcome.stdout.splitlines()]
    assert ("open_run" in said) == is_warned


# --- what a node says and holds


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "admitted"),
        ({"excluded_from": 7}, "excluded by the owner from step 7 on"),
        ({"is_admitted": False, "admission": "invite"}, f"`sfnode run admit {STATUS.node.author} --owner-key FILE`"),
        ({"is_admitted": False, "admission": "invite", "is_invitation_used": True}, "the string to join is used"),
        ({"is_admitted": False, "admission": "open, 20 bits of work"}, "does not have the work"),
    ],
)
def test_status__admission_of_the_own_key__says_what_to_do(changes: dict[str, object], text: str) -> None:
    assert text in admission_of(changed(STATUS, **changes))


def test_store__statements__are_read_before_records_and_an_exclusion_replaces_later_ones(tmp_path: Path) -> None:
    place = Place(tmp_path, LISTED)
    store = Store(DataDirectory(place.data_dir), sign_manifest(LISTED, OWNER))
    store.add([seal(LISTED, 1, 0), seal(LISTED, 1, 5), seal(LISTED, 2, 0)], is_durable=True)
    kept = [admit(LISTED, 1), exclude(LISTED, 2, 9)]
    store.add_statements([*kept, exclude(LISTED, 1, 7), exclude(LISTED, 1, 6)])  # an owner could fill the disk so
    store.add_statements([exclude(LISTED, 1, 5)])
    assert store.statements() == [*kept, exclude(LISTED, 1, 5)]
    store.close()
    with DataDirectory(place.data_dir).replayed(LISTED) as replica:
        assert [envelope.step for envelope in replica.ledger.slots.envelopes()] == [0]


def test_submit__same_statements_twice__are_one_file(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path).statements.submit([admit(LISTED, 1)])
    assert DataDirectory(tmp_path).statements.submit([admit(LISTED, 1)]) == first
    assert list((tmp_path / INBOX_FOLDER).iterdir()) == [first]


def test_statements_file__missing__is_an_operators_error(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot read the statements"):
        read_statements_file(LISTED, tmp_path / "none")


def stored(folder: Path, *statements: bytes) -> Place:
    """A node of the run by list that holds the statements, and what four authors have sent."""
    folder.mkdir()
    place = Place(folder, LISTED)
    KeyFile(place.data_dir / IDENTITY_FILE).store(b"\1" * 32)
    store = Store(DataDirectory(place.data_dir), sign_manifest(LISTED, OWNER))
    store.add_statements([admit(LISTED, 1), admit(LISTED, 2), *statements])
    store.add([seal(LISTED, author, step) for author in (1, 2) for step in (0, 5, 9)], is_durable=True)
    store.close()
    return place


@pytest.mark.parametrize("is_new", [True, False])
def test_log_file__run_with_statements__is_the_same_run_where_it_is_imported(is_new: bool, tmp_path: Path) -> None:
    full, held = stored(tmp_path / "full", exclude(LISTED, 1, 5)), stored(tmp_path / "held")
    file, target = tmp_path / "run.sflog", tmp_path / "new" if is_new else held.data_dir
    assert call("log", "export", file, "--data-dir", full.data_dir).code == 0
    assert call("log", "import", file, "--data-dir", target).code == 0
    with DataDirectory(full.data_dir).replayed(LISTED) as left, DataDirectory(target).replayed(LISTED) as right:
        assert (left.ledger.root(), left.state_digest()) == (right.ledger.root(), right.state_digest())
        assert right.ledger.updates == 4


def test_log_file__statements_out_of_their_order__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, file = stored(tmp_path / "full", exclude(LISTED, 1, 5)), tmp_path / "run.sflog"
    with monkeypatch.context() as patch:
        patch.setattr(Roster, "statements", lambda self: self.page(b"", 9)[0][::-1])
        assert call("log", "export", file, "--data-dir", full.data_dir).code == 0
    assert_teaches(call("log", "import", file, "--data-dir", tmp_path / "new"), "statement is not in its place", "byte")
