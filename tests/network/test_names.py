"""Names that nodes give themselves: what is believed, how far they get, how many are kept."""

from __future__ import annotations

import re
import time

import pytest
import trio

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import node_names
from sfnode.network.policy.addresses import parse_untrusted, peer_of_author
from sfnode.network.policy.node_names import NameBook, parse_name, read_name_untrusted, sign_name
from sfnode.network.saved_peers import encode_names, restore_names
from tests import REPOSITORY
from tests.support.ledgers import signer
from tests.support.network_nodes import LOOPBACK, RUN_ID, network, seed, start, until
from tests.vectors.runs import AUTHOR, EXAMPLE

ANN = signer(1)


def peer(number: int) -> str:
    return peer_of_author(signer(number).author)


def text(name: str = "Ann", seconds: int = 5, by: Signer = ANN, run_id: bytes = RUN_ID) -> str:
    return sign_name(by, run_id, name, seconds).text


def test_name__example_of_the_specification__is_what_is_signed() -> None:
    specified = re.search(r"`(name:\d+:\S+)`", (REPOSITORY / "protocol" / "SPEC.md").read_text("utf-8"))
    assert specified is not None
    assert specified[1] == sign_name(AUTHOR, EXAMPLE.run_id, "Ann", 1_700_000_000).text
    found = read_name_untrusted(specified[1], AUTHOR.author, EXAMPLE.run_id)
    assert found is not None and found.name == "Ann"
    assert parse_untrusted((specified[1],)) == (), "a node that knows no names takes it for an address"


@pytest.mark.parametrize(
    "said",
    [
        text(by=signer(2)),
        text(run_id=bytes(32)),
        text().replace("Ann", "Eve"),
        text().replace("name:5:", "name:6:"),
        text("\x1b[31mred"),
        text("\u202eturned"),
        text("x" * 33),
        text(""),
        text(" Ann"),
        text().replace("name:5:", "name:٥:"),
        "name:",
        "name:5:====:Ann",
        "name:5:é:Ann",
        "name:" + "9" * 200 + ":x:Ann",
    ],
)
def test_name__not_signed_by_its_node_or_unfit__is_not_believed(said: str) -> None:
    book = NameBook(RUN_ID)
    book.hear(peer(1), (said,))
    assert book.names() == {}


@pytest.mark.parametrize("unseen", ["\u3164", "\u115f", "\u2800", "\u034f", "\ufe0f", "\U000e0101"])
def test_name__letters_that_show_nothing__are_refused_and_others_are_shown_by_number(unseen: str) -> None:
    """A fault once: "Ann" and a filler was shown as "Ann". Zero-width letters were refused already."""
    name = f"Ann{unseen}"
    with pytest.raises(OperatorError, match="none of them invisible") as refusal:
        parse_name(name)
    book = NameBook(RUN_ID)
    book.hear(peer(1), (text(name),))
    (shown,) = book.names().values()
    assert shown == "Ann" + ascii(unseen)[1:-1] and shown in str(refusal.value)


def test_name__later_one__holds_in_any_order() -> None:
    for order in ((5, 6), (6, 5)):
        book = NameBook(RUN_ID)
        for seconds in order:
            book.hear(peer(1), ("/ip4/192.0.2.1/tcp/1", text(f"Ann {seconds}", seconds)))
        assert book.names() == {ANN.author.hex(): "Ann 6"}


def test_name__signed_by_a_clock_that_was_far_ahead__is_not_kept() -> None:
    """Others showed it until that time came, whatever the node was called once its clock was right."""
    book, now = NameBook(RUN_ID), int(time.time())
    for seconds in (now + 3_600, now + 100_000):
        book.hear(peer(1), (text(f"Ann {seconds - now}", seconds),))
    assert book.names() == {ANN.author.hex(): "Ann 3600"}


def test_names__more_than_are_kept__the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_names, "NAMES_MAX", 2)
    book = NameBook(RUN_ID)
    for number in (1, 2, 3):
        book.hear(peer(number), (text(f"number {number}", by=signer(number)),))
    assert sorted(book.names().values()) == ["number 2", "number 3"]


def test_names__many_are_made_up__those_of_the_runs_authors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """One neighbour's 1,024 keys, which cost it nothing, took the names of all authors off every screen."""
    monkeypatch.setattr(node_names, "NAMES_MAX", 3)
    book = NameBook(RUN_ID)
    book.has_contributed = lambda author: author in (signer(1).author, signer(2).author)
    for number in (1, 2, *range(10, 20)):
        book.hear(peer(number), (text(f"number {number}", by=signer(number)),))
    assert sorted(book.names().values()) == ["number 1", "number 19", "number 2"]


def test_names__saved_and_read_again__are_checked_again() -> None:
    book, again = NameBook(RUN_ID), NameBook(RUN_ID)
    book.hear(peer(1), (text(),))
    saved = encode_names(book.texts())
    restore_names(again, saved.replace("Ann", "Eve"))
    assert again.names() == {}
    for damaged in ("", "[]", "{", '{"x": 1}', "[[1]]", '{"x": "name:1:x:y"}'):
        restore_names(again, damaged)
    restore_names(again, saved)
    assert again.names() == book.names() == {ANN.author.hex(): "Ann"}


@pytest.mark.parametrize("typed", ["", " ", "x" * 33, "two\nlines", "\u202eturned"])
def test_name__typed_and_unfit__is_refused_with_what_is_allowed(typed: str) -> None:
    with pytest.raises(OperatorError, match="1 to 32 characters"):
        parse_name(typed)


async def test_name__node_behind_a_router__reaches_one_that_never_meets_it() -> None:
    """Ann only dials out, so that nobody can dial her: her name reaches the third node all the same."""
    async with trio.open_nursery() as nursery:
        hub = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,))))
        ann = Signer(seed(2))
        named = NetworkConfig(bootstrap=hub.addresses, own_name=sign_name(ann, RUN_ID, "Ann", 5))
        await start(nursery, network(2, named))
        await until(lambda: hub.network.names.names() == {ann.author.hex(): "Ann"})
        third = await start(nursery, network(3, NetworkConfig(bootstrap=hub.addresses)))
        await until(lambda: third.network.names.names() == {ann.author.hex(): "Ann"})
        assert third.peers() == {hub.peer}
        nursery.cancel_scope.cancel()
