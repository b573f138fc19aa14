"""Pages of statements in a sync session: what an honest node never answers ends the session (SPEC 8.4.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from protocol import limits
from protocol.errors import Reject, RejectReason
from protocol.ledger.ledger import Ledger
from protocol.sync.anti_entropy import Claims, SyncSession
from protocol.wire import Spans, Statements, StatementsRequest
from tests.support.ledgers import admit, claim
from tests.support.manifests import small_manifest

INVITED = small_manifest(admission="invite", steps=2_048)
FIRST, SECOND, THIRD = sorted(admit(INVITED, number) for number in range(3))
CLAIMS = [claim(INVITED, 1, author) for author in range(3)]


def session_that_asks() -> SyncSession:
    """A session whose peer says that it holds other statements."""
    session = SyncSession(Ledger(INVITED), Claims(), None)
    session.advance(None, 1)
    request = session.advance(Spans(request=1, statements=b"\1" * 16, spans=()), 2)
    assert isinstance(request, StatementsRequest)
    return session


def page(statements: Sequence[bytes], *, is_last: bool = False) -> Statements:
    return Statements(request=2, statements=tuple(statements), is_last=is_last)


def test_session__statements_in_pages_that_ascend__is_complete() -> None:
    session = session_that_asks()
    assert isinstance(session.advance(page([FIRST, SECOND]), 3), StatementsRequest)
    assert isinstance(session.advance(page([THIRD]), 4), StatementsRequest)
    assert session.advance(page(CLAIMS[:2], is_last=True), 5) is None
    assert session.is_complete


@pytest.mark.parametrize(
    "pages",
    [
        [page([])],
        [page([SECOND, FIRST])],
        [page([FIRST, SECOND]), page([SECOND])],
        [page([SECOND]), page([FIRST], is_last=True)],
        [page(CLAIMS)],
    ],
    ids=["empty-page-not-last", "descend", "same-again", "before-the-cursor", "three-of-one-token"],
)
def test_session__page_of_statements_no_honest_node_gives__is_rejected(pages: list[Statements]) -> None:
    session = session_that_asks()
    for number, good in enumerate(pages[:-1]):
        assert session.advance(good, number + 3) is not None
    with pytest.raises(Reject) as caught:
        session.advance(pages[-1], 9)
    assert caught.value.reason is RejectReason.UNREQUESTED


def test_session__endless_pages_of_statements__are_rejected_at_what_any_node_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STATEMENTS_MAX", 1)
    session = session_that_asks()
    assert session.advance(page([FIRST, SECOND]), 3) is not None
    with pytest.raises(Reject, match="more statements than any node holds"):
        session.advance(page([THIRD]), 4)
