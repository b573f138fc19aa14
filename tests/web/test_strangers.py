"""Strangers at a page: they hold a place for a few seconds, the newest first, and take none from who may see it."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sfnode import http_guard
from sfnode.http_guard import STRANGERS_MAX, STRANGERS_PER_ORIGIN_MAX, Strangers, is_name_of_ours, url_to_open
from sfnode.web import server
from tests.support.made_pages import MadeNode
from tests.web.test_server import LIMIT_S, TOKEN, Browser, Stream, served


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeNode:
    monkeypatch.setattr(server, "_LOOK_S", 0.05)
    return MadeNode(tmp_path)


async def half_request(browser: Browser) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", browser.port)
    await stream.send_all(b"GET /?token=")
    return stream


async def test_page__forty_half_requests_without_a_token__each_of_25_loads_is_answered(made: MadeNode) -> None:
    """One of 25 was: whoever came first held all 32 places, for five seconds each time."""
    async with served(made.page(), token=TOKEN) as browser, AsyncExitStack() as attack:
        for _ in range(40):
            await attack.enter_async_context(await half_request(browser))
        loads = []
        for _ in range(25):
            loads.append((await browser.ask("/", Authorization=f"Bearer {TOKEN}")).status)
            await attack.enter_async_context(await half_request(browser))
    assert loads == [200] * 25


async def test_stranger__asks_without_a_token__its_connection_ends_with_the_answer(made: MadeNode) -> None:
    async with served(made.page(), token=TOKEN) as browser:
        refused = await browser.ask("/", Connection="keep-alive")
    assert (refused.status, refused.headers["connection"]) == (401, "close")


async def test_viewer__has_shown_the_token__strangers_do_not_displace_it(made: MadeNode) -> None:
    async with served(made.page(), token=TOKEN) as browser, AsyncExitStack() as connections:
        viewing = await browser.open("/events", Authorization=f"Bearer {TOKEN}")
        stream = Stream(await connections.enter_async_context(viewing))
        await stream.next()
        for _ in range(40):
            await connections.enter_async_context(await half_request(browser))
        made.tail.take(20, ("a peer joined",))
        assert set(await stream.next()) == {"log"}


async def test_stranger__says_half_a_request_and_waits__is_let_go(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_guard, "PATIENCE_S", 0.2)
    async with served(made.page(), token=TOKEN) as browser, await half_request(browser) as stream:
        with trio.fail_after(LIMIT_S), suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""


# --- places


async def hold(strangers: Strangers, host: str, ended: list[str], nursery: trio.Nursery) -> None:
    """A stranger that waits; its host is added to ``ended`` when it has been let go."""

    async def wait() -> None:
        with strangers.place(host):
            await trio.sleep(36_000)
        ended.append(host)

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()


async def test_places__one_origin_has_its_part__its_own_oldest_makes_room(autojump_clock: MockClock) -> None:
    strangers = Strangers()
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        await hold(strangers, "192.0.2.1", ended, nursery)
        for number in range(STRANGERS_PER_ORIGIN_MAX + 1):
            await hold(strangers, f"2001:db8::{number}", ended, nursery)
        assert ended == ["2001:db8::0"]  # one network is one origin, however many addresses it has
        nursery.cancel_scope.cancel()


async def test_places__all_are_taken__the_oldest_of_the_most_crowded_origin_makes_room(
    autojump_clock: MockClock,
) -> None:
    strangers = Strangers()
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        await hold(strangers, "192.0.2.1", ended, nursery)
        for number in range(STRANGERS_MAX - 1):
            await hold(strangers, f"192.0.2.{2 + number // 2}", ended, nursery)
        await hold(strangers, "198.51.100.1", ended, nursery)
        assert (ended, len(strangers)) == (["192.0.2.2"], STRANGERS_MAX)
        nursery.cancel_scope.cancel()


async def test_place__patience_is_over__ends_unless_the_stranger_was_recognised(autojump_clock: MockClock) -> None:
    strangers = Strangers()
    with strangers.place("192.0.2.1"):
        await trio.sleep(36_000)
    with strangers.place("192.0.2.1") as known:
        strangers.recognise(known)
        await trio.sleep(10 * http_guard.PATIENCE_S)
    assert (trio.current_time(), len(strangers)) == (11 * http_guard.PATIENCE_S, 0)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost:9", True),
        ("LocalHost", True),
        ("127.0.0.1", True),
        ("[::1]:9", True),
        ("box", True),
        ("BOX:9", True),
        ("evil.org", False),
        ("", False),
    ],
)
def test_name__of_a_host_header__is_ours_or_an_address(host: str, is_ours: bool) -> None:
    assert is_name_of_ours(host, "Box") is is_ours


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8420/"),
        ("::", "http://[::1]:8420/"),
        ("192.0.2.7", "http://192.0.2.7:8420/"),
        ("2001:db8::7", "http://[2001:db8::7]:8420/"),
        ("localhost", "http://localhost:8420/"),
    ],
)
def test_url__of_all_addresses_of_a_machine__names_one_that_a_browser_opens(host: str, url: str) -> None:
    """A container printed http://0.0.0.0:8420/, which opens nowhere on Windows and not in every browser elsewhere."""
    assert url_to_open(host, 8420) == url
