"""A copy of a node's key that runs elsewhere: the operator hears of it, once."""

from __future__ import annotations

import io
import json

from protocol.events import PeerLeft
from protocol.ledger import Ledger
from protocol.wire import PeerId
from sfnode.network.sessions.handshake import DUPLICATE
from sfnode.node.watching.network_news import KeyCopyNews
from sfnode.reporter import Reporter
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import small_manifest

RUN = small_manifest()
EMPTY = ledger_of(RUN, [])
BYE = f"the peer said bye: {DUPLICATE}"


def said(*looks: tuple[Ledger, list[str]]) -> list[str]:
    """What a node of `signer(1)` reports at these looks; before each, neighbours leave for these reasons."""
    stream = io.StringIO()
    news = KeyCopyNews(Reporter(is_json=True, stream=stream), signer(1).author)
    for ledger, reasons in looks:
        for reason in reasons:
            news.hear(PeerLeft(peer=PeerId("p"), reason=reason))
        news.look(ledger)
    return [json.loads(line)["reason"] for line in stream.getvalue().splitlines()]


def voided(author: int) -> Ledger:
    """A ledger in which this author has signed two updates for one step."""
    return ledger_of(RUN, [seal(RUN, author, 3, *(7,) * RUN.numbers), seal(RUN, author, 3, *(8,) * RUN.numbers)])


def test_key_copy__slot_of_this_node_is_void__is_reported_once() -> None:
    (text,) = said((EMPTY, []), (voided(1), []), (voided(1), 8 * [BYE]))[:1]
    assert text.startswith("two updates of this node's key for one step")
    assert said((voided(1), []), (voided(1), [])) == [text]


def test_key_copy__slot_of_another_author_is_void__is_not_reported() -> None:
    assert said((voided(2), [])) == []


def test_key_copy__sessions_end_again_and_again_for_newer_ones__is_reported_once() -> None:
    (text,) = said((EMPTY, 5 * [BYE]), (EMPTY, 3 * [BYE]), (EMPTY, 8 * [BYE]))
    assert text.startswith("one neighbour after the other says that it has a newer session with this node's key")


def test_key_copy__both_ends_dialled_at_once_now_and_then__is_not_reported() -> None:
    assert said((EMPTY, 7 * [BYE]), (EMPTY, ["the peer said bye: stopped", *7 * [BYE]]), (EMPTY, 8 * [DUPLICATE])) == []
