"""One string with all that a joiner needs: whole or not, however it came through a chat, and what is never in it."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import msgpack
import pytest

from protocol.errors import OperatorError
from protocol.ledger.statements import StatementCodec
from protocol.run.invitation import read_invitation
from sfnode.network.policy.addresses import parse_bootstrap
from sfnode.run.pasted_string import wrapped
from sfnode.run.public_data import described_source
from sfnode.run.run_address import NODES_MAX, RunAddress, address_for_others, join_string, parse_run_addresses
from tests.support.manifests import OWNER, small_manifest

PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
PUBLIC, NAMED = (
    parse_bootstrap(f"/{host}/tcp/4001/p2p/{PEER}") for host in ("ip4/203.0.113.7", "dns4/node.example.org")
)
RUN = small_manifest(admission="invite")
TOLD = RunAddress(
    run_id=RUN.run_id,
    nodes=(PUBLIC, NAMED),
    invitation=StatementCodec(RUN).invite(OWNER, b"\5" * 32).text,
    run_model="facebook/opt-1.3b",
    run_data="file:train.jsonl",
    run_data_bytes=123_456,
)
STRING = join_string(TOLD)


def test_join_string__made_and_read__is_the_same() -> None:
    assert parse_run_addresses([STRING]) == TOLD
    assert parse_run_addresses([join_string(replace(TOLD, invitation="", nodes=(PUBLIC,)))]).invitation == ""
    assert len(parse_run_addresses([join_string(replace(TOLD, nodes=(PUBLIC,) * 9))]).nodes) == NODES_MAX


def test_join_string__cut_off_anywhere__is_said_to_be_cut_off() -> None:
    for length in range(len("sfnode:v1.a"), len(STRING)):
        told = rf"cut off(\.| after ({length}|{length + 1}) of its {len(STRING)} characters).*Copy all"
        with pytest.raises(OperatorError, match=told):
            parse_run_addresses([STRING[:length]])
        with pytest.raises(OperatorError, match=told):
            parse_run_addresses([f"{STRING[:length]}="])  # a line of a mail's source: it ended in a traceback


def test_join_string__one_letter_is_another__is_refused_wherever_it_is() -> None:
    chance = random.Random(1)
    for at in range(len("sfnode:v1."), len(STRING)):
        other = chance.choice([letter for letter in "abcdefghijklmnopqrstuvwxyz234567" if letter != STRING[at]])
        with pytest.raises(OperatorError, match=r"cut off|a character is wrong or too many"):
            parse_run_addresses([STRING[:at] + other + STRING[at + 1 :]])


@pytest.mark.parametrize("mistaken", ["0", "1", "8", "-", "é"])
def test_join_string__character_that_none_has__is_named(mistaken: str) -> None:
    with pytest.raises(OperatorError, match=f"{mistaken!r} in it, which does not belong there"):
        parse_run_addresses([f"{STRING[:40]}{mistaken}{STRING[41:]}"])


def test_join_string__with_books_behind_it__is_refused_in_words() -> None:
    """A tenth of them took a minute: words before the string were looked for from each letter on."""
    with pytest.raises(OperatorError, match="a character is wrong or too many"):
        parse_run_addresses([STRING + "a" * 1_000_000])


@pytest.mark.parametrize(
    "texts",
    [
        [STRING.upper()],
        [f"  {STRING}\n"],
        [f'"{STRING}"'],
        [f"<{STRING}>."],
        ["\n".join(STRING[at : at + 64] for at in range(0, len(STRING), 64))],
        ["\r\n ".join(STRING[at : at + 30] for at in range(0, len(STRING), 30))],
        ["\u200b".join(STRING)],
        [STRING[:100], STRING[100:200], STRING[200:]],  # as a shell splits what has spaces
        [f"> {STRING[:70]}\r\n> {STRING[70:]}\r\n"],
        [f"{STRING[:72]}=\n{STRING[72:]}"],
        [f"Hello Ann,\n\nwith this you join: {STRING}"],
        [f"https://example.org/join#{STRING}"],
        [STRING.replace("sfnode:", "sfnode%3A")],
        [STRING.replace("sfnode:", "sfnode://")],
        [f"\u201c{STRING}\u201d!"],
        [f"[{STRING}]({STRING})"],
        [f"{STRING}\n{STRING}"],
    ],
    ids=[
        *("upper case", "around", "quoted", "linked", "lines", "mail", "invisible", "words", "reply", "source"),
        *("sentence", "address", "encoded", "slashes", "curly quotes", "Markdown", "twice"),
    ],
)
def test_join_string__as_a_chat_leaves_it__is_read(texts: list[str]) -> None:
    assert parse_run_addresses(texts) == TOLD


def test_join_string__beside_other_addresses__all_nodes_of_one_run() -> None:
    old = RunAddress(run_id=RUN.run_id, nodes=(NAMED,))
    assert parse_run_addresses([str(old), STRING]) == replace(TOLD, nodes=(NAMED, PUBLIC, NAMED))
    assert parse_run_addresses([STRING, str(NAMED)]).nodes == (PUBLIC, NAMED, NAMED)
    with pytest.raises(OperatorError, match="of two runs"):
        parse_run_addresses([STRING, str(replace(old, run_id=b"\1" * 32))])


def test_join_string__of_a_later_version__says_to_update() -> None:
    with pytest.raises(OperatorError, match="of version v2, and this sfnode reads v1: update sfnode"):
        parse_run_addresses([STRING.replace("v1.", "v2.")])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        msgpack.packb({}),
        msgpack.packb([bytes(32)]),
        msgpack.packb([bytes(31), [["/ip4/203.0.113.7/tcp/1", bytes(32)]], b"", "m", "d", 0]),
        msgpack.packb([bytes(32), [], b"", "m", "d", 0]),
        msgpack.packb([bytes(32), [["/tcp/1", bytes(32)]], b"", "m", "d", 0]),
        msgpack.packb([bytes(32), [["/ip4/203.0.113.7/tcp/1", bytes(32)]], bytes(95), "m", "d", 0]),
        msgpack.packb([bytes(32), [["/ip4/203.0.113.7/tcp/1", bytes(32)]], b"", "m", "d", 1 << 40]),
        msgpack.packb([[[[[[[]]]]]]]),
    ],
)
def test_join_string__whole_but_made_by_a_stranger__is_refused_in_words(content: bytes) -> None:
    with pytest.raises(OperatorError, match=r"not one that sfnode makes|half an invitation"):
        parse_run_addresses([wrapped(content)])


def test_join_string__of_a_node__holds_nothing_but_what_is_listed() -> None:
    string = join_string(address_for_others(RUN, [PUBLIC], 0))
    told = parse_run_addresses([string])
    assert {field.name for field in fields(told)} == {
        "run_id", "nodes", "invitation", "run_model", "run_data", "run_data_bytes",
    }  # fmt: skip
    assert (told.nodes, told.invitation, told.run_data_bytes) == ((PUBLIC,), "", 0)
    assert (told.run_model, told.run_data) == (RUN.model.id, RUN.task.data)
    assert join_string(address_for_others(RUN, [], 0)) == ""
    assert "invite" not in str(TOLD) and str(TOLD).startswith("sfnode:" + RUN.run_id.hex())


def test_join_string__invitation_in_it__is_the_owners() -> None:
    assert read_invitation(parse_run_addresses([STRING]).invitation).secret == b"\5" * 32


@pytest.mark.parametrize(
    ("data", "data_bytes", "words"),
    [
        ("private", 0, "data of your own (--data), which never leave this machine"),
        ("embedded:reviews", 0, "come with sfnode"),
        ("file:a.jsonl", 7, "public data file:a.jsonl, from its nodes"),
        ("file:a.jsonl", 0, "a copy of which you name with --data"),
    ],
)
def test_described_source__each_kind_of_data__says_where_they_come_from(data: str, data_bytes: int, words: str) -> None:
    text = described_source(replace(TOLD, run_data=data, run_data_bytes=data_bytes))
    assert "facebook/opt-1.3b" in text and words in text
