"""What the authors of a run are called: the owner's notes, their own names, and who is meant by a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.ledger.roster import Roster
from sfnode.status import Names, author_names
from sfnode.storage.data_directory import DataDirectory
from tests.support.ledgers import admit, claim, signer
from tests.support.manifests import small_manifest

RUN = small_manifest(admission="invite")
ANN, BOB, EVE = (signer(number).author.hex() for number in (1, 2, 3))
NAMES = Names(noted={ANN: "Ann"}, said={ANN: "annie", BOB: "Bob", EVE: "Ann"})


def test_names__of_an_author__the_owners_note_comes_first() -> None:
    assert [NAMES.of(author) for author in (ANN, BOB, "ff" * 32)] == ["Ann", "Bob", ""]
    assert (
        NAMES.label(BOB) == f"Bob {BOB[:16]}"
        and NAMES.label("ff" * 32) == author_names.short_key("ff" * 32) == "ff" * 8
    )


@pytest.mark.parametrize(
    ("word", "meant"), [("Ann", ANN), ("ann", ANN), ("annie", ANN), (" Bob ", BOB), (BOB[:8], BOB), (EVE[:16], EVE)]
)
def test_names__word_that_means_one__finds_the_key(word: str, meant: str) -> None:
    assert NAMES.find(word, frozenset((ANN, BOB, EVE))) == meant


@pytest.mark.parametrize("word", ["", "Zoe", BOB[:7], "\x1b[31m"])
def test_names__word_that_means_nobody__is_refused_with_where_to_look(word: str) -> None:
    with pytest.raises(OperatorError, match="sfnode run show"):
        NAMES.find(word, frozenset((ANN, BOB)))


def test_names__two_call_themselves_the_same__neither_is_taken() -> None:
    names = Names(said={ANN: "Ann", EVE: "ann"})
    with pytest.raises(OperatorError, match="several") as caught:
        names.find("Ann", frozenset())
    assert ANN[:16] in str(caught.value) and EVE[:16] in str(caught.value)


def test_note__invitation_of_ann__names_who_has_used_it(tmp_path: Path) -> None:
    folder, roster = DataDirectory(tmp_path), Roster(RUN)
    token = roster.codec.decode_untrusted(claim(RUN, 7, 1)).token
    folder.invited.note(token, "Ann")
    folder.invited.note(bytes(32), "Bob")
    assert author_names.names_known(folder, roster, {}).noted == {}
    roster.add(claim(RUN, 7, 1))
    assert author_names.names_known(folder, roster, {}).noted == {ANN: "Ann"}
    roster.add(claim(RUN, 7, 2))
    assert author_names.names_known(folder, roster, {}).noted == {}, "nobody knows which of the two is Ann"
    roster.add(admit(RUN, 1))
    assert author_names.names_known(folder, roster, {}).noted == {ANN: "Ann"}


@pytest.mark.parametrize("held", ["[]", "{", '{"x": "Ann"}', '{"x": 1}', "\udcff"])
def test_note__damaged_file__is_named(held: str, tmp_path: Path) -> None:
    (tmp_path / "invited.json").write_bytes(held.encode("utf-8", "surrogateescape"))
    with pytest.raises(OperatorError, match=r"invited\.json is damaged"):
        DataDirectory(tmp_path).invited.read()
