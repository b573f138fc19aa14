"""A copy of a node's key that runs elsewhere, and a full author table: the operator hears of it, once."""

from __future__ import annotations

import io
import json

from protocol.ledger import Ledger
from sfnode.node.watching.network_news import KeyCopyNews, report_full_table
from sfnode.reporter import Reporter
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import small_manifest
from tests.support.statuses import STATUS, changed

RUN = small_manifest()


def said(*looks: Ledger) -> list[str]:
    """What a node of `signer(1)` reports when it looks at these ledgers, one after the other."""
    stream = io.StringIO()
    news = KeyCopyNews(Reporter(is_json=True, stream=stream), signer(1).author)
    for ledger in looks:
        news.look(ledger)
    return [json.loads(line)["reason"] for line in stream.getvalue().splitlines()]


def voided(author: int) -> Ledger:
    """A ledger in which this author has signed two updates for one step."""
    return ledger_of(RUN, [seal(RUN, author, 3, *(7,) * RUN.numbers), seal(RUN, author, 3, *(8,) * RUN.numbers)])


def test_key_copy__slot_of_this_node_is_void__is_reported_once() -> None:
    (text,) = said(ledger_of(RUN, []), voided(1), voided(1))
    assert text.startswith("two updates of this node's key for one step")


def test_key_copy__slot_of_another_author_is_void__is_not_reported() -> None:
    assert said(voided(2)) == []


def test_full_table__neighbours_are_apart_for_good__is_reported_once() -> None:
    stream = io.StringIO()
    reporter = Reporter(is_json=True, stream=stream)
    for full_peers in (0, 1, 2):
        report_full_table(changed(STATUS, full_peers=full_peers), reporter)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "full_table"
    assert json.loads(line)["reason"].startswith("the author table is full: this node holds updates of 4 authors")
