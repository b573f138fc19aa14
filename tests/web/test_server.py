"""A page over real sockets: what it answers to whom, and that no browser can hold up or end the node."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sfnode.page import PageAddress, asset
from sfnode.page.assets import INDEX, SCRIPTS, STYLE
from sfnode.page.node_page import Page, Sections
from sfnode.unexpected_errors import Slips
from sfnode.web import server
from sfnode.web.access_and_headers import PageAccess
from sfnode.web.server import Viewers, serve_page
from tests.support.made_pages import MadeNode

TOKEN = "t" * 32
LIMIT_S = 10.0


@dataclass
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Browser:
    """Asks a server on this machine, one connection for each request."""

    port: int
    host: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)

    async def open(self, target: str, method: str = "GET", **headers: str) -> trio.SocketStream:
        """A connection on which this was asked."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        own = {"Host": f"{self.host}:{self.port}", "Connection": "close"} | self.headers
        named = own | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        await stream.send_all("\r\n".join(lines).encode())
        return stream

    async def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        """The whole answer."""
        async with await self.open(target, method, **headers) as stream:
            with trio.fail_after(LIMIT_S):
                return answer_in(b"".join([piece async for piece in stream]))


def answer_in(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return Answer(int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body)


@dataclass
class Stream:
    """A stream of events, as it comes."""

    connection: trio.SocketStream
    data: bytes = b""

    async def next(self) -> dict[str, object]:
        """The sections of the next event."""
        with trio.fail_after(LIMIT_S):
            while b"\n\n" not in self.data.partition(b"data: ")[2]:
                piece = await self.connection.receive_some()
                assert piece, self.data
                self.data += piece
        event, _, self.data = self.data.partition(b"data: ")[2].partition(b"\n\n")
        sections: dict[str, object] = json.loads(event)
        return sections


@asynccontextmanager
async def served(
    page: Page, host: str = "127.0.0.1", token: str | None = None, slips: Slips | None = None
) -> AsyncIterator[Browser]:
    """A page at a free port, until the context ends; that takes less than a second."""
    listener = PageAddress(host="127.0.0.1", port=None).listen()
    port = listener.getsockname()[1]
    async with trio.open_nursery() as nursery:
        access = PageAccess(host=host, port=port, token=token)
        nursery.start_soon(serve_page, page, access, listener, slips or Slips())
        yield Browser(port)
        nursery.cancel_scope.cancel()
        ended = trio.current_time()
    assert trio.current_time() - ended < 1.0


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeNode:
    monkeypatch.setattr(server, "_LOOK_S", 0.05)
    node = MadeNode(tmp_path)
    node.link(1, 2)
    node.advance(60)
    return node


async def test_page__its_files__come_with_a_policy_that_lets_nothing_else_in(made: MadeNode) -> None:
    async with served(made.page()) as browser:
        answers = [await browser.ask(target) for target in ("/", *(f"/{name}" for name in (*SCRIPTS, STYLE)))]
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert answers[0].body == asset(INDEX)
    assert all("default-src 'none'; script-src 'self'" in each.headers["content-security-policy"] for each in answers)
    assert all(each.headers["x-content-type-options"] == "nosniff" for each in answers)
    assert sum(len(answer.body) for answer in answers) < 300_000


@pytest.mark.parametrize("target", ["/page.py", "/../identity.key", "/static/page.js", "/view", "//"])
async def test_page__anything_else__is_not_found(made: MadeNode, target: str) -> None:
    async with served(made.page()) as browser:
        assert (await browser.ask(target)).status == 404


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("[::1]", 200), ("192.0.2.7", 200), ("evil.org", 421)]
)
async def test_page__names_that_lead_here__only_those_that_nobody_can_rebind(
    made: MadeNode, host: str, status: int
) -> None:
    async with served(made.page()) as browser:
        browser.host = host
        assert (await browser.ask("/")).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_page__a_request_that_would_write__is_refused(made: MadeNode, method: str) -> None:
    async with served(made.page()) as browser:
        answer = await browser.ask("/", method)
    assert (answer.status, answer.headers["allow"]) == (405, "get, head")


@pytest.mark.parametrize("target", ["/", "/events", "/view"])
async def test_page__asked_for_the_head_alone__answers_as_to_get(made: MadeNode, target: str) -> None:
    async with served(made.page()) as browser:
        head = await browser.ask(target, "HEAD")
        async with await browser.open(target) as stream:
            got = answer_in(await stream.receive_some())
    assert (head.status, head.body) == (got.status, b"")
    assert head.headers.keys() == got.headers.keys()


async def test_page__another_site_asks_behind_the_back_of_its_visitor__is_refused(made: MadeNode) -> None:
    async with served(made.page()) as browser:
        behind = await browser.ask("/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")
        link = await browser.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert (behind.status, link.status) == (403, 200)


@pytest.mark.parametrize("target", ["/", "/events", "/page.js", "/?token=wrong"])
async def test_token__not_shown__nothing_is(made: MadeNode, target: str) -> None:
    async with served(made.page(), token=TOKEN) as browser:
        answer = await browser.ask(target, Cookie=f"sfnode_{browser.port}=wrong")
    assert answer.status == 401
    assert b"web.token" in answer.body and TOKEN.encode() not in answer.body


async def test_token__shown_once__the_browser_keeps_it_where_no_script_reads_it(made: MadeNode) -> None:
    async with served(made.page(), token=TOKEN) as browser:
        first = await browser.ask(f"/?token={TOKEN}")
        cookie = first.headers["set-cookie"]
        again = await browser.ask("/", Cookie=cookie.partition(";")[0])
        program = await browser.ask("/", Authorization=f"Bearer {TOKEN}")
    assert (first.status, first.headers["location"]) == (303, "/")
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert (again.status, program.status) == (200, 200)


async def test_stream__first_event__has_all_and_the_next_what_has_changed(made: MadeNode) -> None:
    async with served(made.page()) as browser, await browser.open("/events") as connection:
        stream = Stream(connection)
        first = await stream.next()
        made.tail.take(logging.INFO, ("a peer joined",))
        second = await stream.next()
    assert {"run", "status", "evaluations", "losses", "authors", "neighbours", "log"} <= set(first)
    assert set(second) == {"log"}


async def test_stream__more_browsers_than_places__the_last_is_refused_until_one_leaves(made: MadeNode) -> None:
    async with served(made.page()) as browser:
        streams = [Stream(await browser.open("/events")) for _ in range(server.VIEWERS_MAX)]
        for stream in streams:
            await stream.next()
        refused = await browser.ask("/events")
        await streams[0].connection.aclose()
        await trio.sleep(0.1)
        late = Stream(await browser.open("/events"))
        assert await late.next()
        for stream in (*streams, late):
            await stream.connection.aclose()
    assert (refused.status, "retry-after" in refused.headers) == (503, True)


async def test_connections__more_than_there_may_be__are_closed_at_once(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 2)
    async with served(made.page()) as browser:
        streams = [Stream(await browser.open("/events")) for _ in range(2)]
        for stream in streams:
            await stream.next()
        async with await trio.open_tcp_stream("127.0.0.1", browser.port) as third:
            with trio.fail_after(LIMIT_S):
                assert await third.receive_some() == b""
        for stream in streams:
            await stream.connection.aclose()


class LargePage(Page):
    """Says more each second than a connection holds that nobody reads."""

    def sections(self) -> Sections:
        return {"filling": "x" * 20_000_000, "time": trio.current_time()}


async def test_browser__takes_nothing__the_end_of_the_node_does_not_wait_for_it(made: MadeNode) -> None:
    page = made.page(LargePage)
    async with served(page) as browser:
        connection = await browser.open("/events")
        await trio.sleep(0.3)  # by now the server is stuck in a send; `served` times the end
    await connection.aclose()


async def test_browser__takes_nothing_for_long__is_let_go(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SEND_S", 0.6)  # on a busy machine `open` may take some tenths to read the head
    page = made.page(LargePage)
    async with served(page) as browser, await browser.open("/events") as connection:
        await trio.sleep(3.0)  # on a busy machine the server may need some of it to begin to send
        with trio.fail_after(LIMIT_S), suppress(trio.BrokenResourceError):
            async for _ in connection:  # comes to an end: closed, or reset
                pass


class FailingPage(Page):
    """Cannot be made the first two times."""

    failures = 2

    def sections(self) -> Sections:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("a bug of ours")
        return super().sections()


async def test_page__cannot_be_made__is_counted_as_a_slip_and_made_again(made: MadeNode) -> None:
    page, slips = made.page(FailingPage), Slips()
    async with served(page, slips=slips) as browser, await browser.open("/events") as connection:
        assert "status" in await Stream(connection).next()
    assert (slips.state.count, slips.state.last.split(",")[0]) == (2, "ZeroDivisionError in the page")


async def said_by_stranger(browser: Browser, said: bytes) -> bytes:
    """What a page answers to these bytes, until it closes the connection."""
    answer = b""
    with trio.fail_after(LIMIT_S), suppress(trio.BrokenResourceError):
        async with await trio.open_tcp_stream("127.0.0.1", browser.port) as stream:
            await stream.send_all(said)
            async for piece in stream:
                answer += piece
    return answer


async def test_connection__garbage_instead_of_http__ends_without_harm(made: MadeNode) -> None:
    async with served(made.page()) as browser:
        assert (await said_by_stranger(browser, b"\x00\xff GET\r\n\r\n" * 10))[:12] in (b"HTTP/1.1 400", b"")
        assert (await browser.ask("/")).status == 200


_UPGRADE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n"
_WEBSOCKET = (
    b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and empty settings
_PRIORITIES = b"".join(bytes([0, 0, 5, 2, 0]) + (2 * at + 1).to_bytes(4) + bytes(5) for at in range(1, 1_100))


@pytest.mark.parametrize(
    "said", [_UPGRADE, _WEBSOCKET, _HTTP_2 + _PRIORITIES, 3 * b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
)
async def test_connection__stranger_asks_for_more_than_http_1_or_in_advance__is_no_slip_of_ours(
    said: bytes, made: MadeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Each was an error with a traceback in the log of the node; those in HTTP/2 were counted as bugs of ours."""
    slips = Slips()
    async with served(made.page(), token=TOKEN, slips=slips) as browser:
        for _ in range(10):  # which task is first is chance
            assert (await said_by_stranger(browser, said))[:11] in (b"HTTP/1.1 40", b"HTTP/1.1 42", b"")
        assert (await browser.ask("/", Authorization=f"Bearer {TOKEN}")).status == 200
    assert slips.state.count == 0 and not caplog.records


async def test_request__a_slip_of_ours__is_an_error_to_the_browser_and_counted(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    slips = Slips()
    monkeypatch.setattr("sfnode.web.server.asset", lambda _name: 1 / 0)
    async with served(made.page(), slips=slips) as browser:
        assert (await browser.ask("/")).status == 500
    assert (slips.state.count, slips.state.last.split(",")[0]) == (1, "ZeroDivisionError in a request of the page")


async def test_connection__a_slip_of_ours__ends_it_alone_and_is_counted(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood in the log alone, where `status` and `doctor` did not see it."""
    slips = Slips()
    async with served(made.page(), slips=slips) as browser:
        with monkeypatch.context() as patches:
            patches.setattr("sfnode.web.server.ConnectionState", lambda _state: 1 / 0)
            with pytest.raises((IndexError, ValueError)):
                await browser.ask("/")  # nothing comes
        assert (await browser.ask("/")).status == 200
    assert (slips.state.count, slips.state.last.split(",")[0]) == (1, "ZeroDivisionError in a connection of the page")


@pytest.mark.parametrize(("look_s", "looks_a_minute"), [(0.0, 60), (0.04, 58), (0.5, 6), (1.0, 3)])
async def test_viewers__look_takes_long__leaves_the_node_nearly_all_of_its_time(
    look_s: float, looks_a_minute: int, autojump_clock: MockClock
) -> None:
    """A page of 1,000 authors and 100,000 steps took the node four fifths of its time, in the task of its network."""
    looks: list[float] = []

    def sections() -> Sections:
        autojump_clock.jump(look_s)
        looks.append(trio.current_time())
        return {"status": len(looks)}

    page: Any = SimpleNamespace(sections=sections)
    viewers = Viewers(page, Slips())
    with viewers.place():
        looks.clear()
        with trio.move_on_after(60):
            await viewers.run()
    assert len(looks) == looks_a_minute
