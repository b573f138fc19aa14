"""The one log: what is shown from which level on, and that nobody can fill the disk with it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.events import PeerJoined, PeerLeft
from protocol.wire import PeerId
from sfnode import event_log
from sfnode.event_log import log, show_log
from sfnode.node.watching.network_news import NetworkNews
from sfnode.reporter import Reporter
from sfnode.unexpected_errors import Slips


@contextmanager
def shown(level: int, *, is_json: bool = True) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("sfnode")
    usual = logger.level, logger.propagate
    handler = show_log(Reporter(is_json=is_json, stream=stream, level=level), level)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = usual


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("level", "names"), [("debug", ["a", "b", "c"]), ("info", ["b", "c"]), ("error", [])])
def test_log__level__shows_what_is_as_important_or_more(level: str, names: list[str]) -> None:
    with shown(event_log.LEVELS[level]) as stream:
        log(logging.DEBUG, "a")
        log(logging.INFO, "b", port=4001)
        log(logging.WARNING, "c", reason="bad bytes")
    assert [event["event"] for event in events(stream)] == names


def test_log__text__is_one_line_of_name_and_fields_that_no_stranger_can_forge() -> None:
    with shown(logging.INFO, is_json=False) as stream:
        log(logging.WARNING, "peer_rejected", peer="12D3", reason="x\nerror: forged")
    assert stream.getvalue() == "warning: peer_rejected peer=12D3 reason=x\\nerror: forged\n"


def test_log__same_event_again_and_again__is_shown_once_in_a_while_with_how_many_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr("sfnode.event_log.time.monotonic", lambda: now_s)
    with shown(logging.INFO) as stream:
        for _ in range(1_000):
            log(logging.WARNING, "peer_rejected")
        now_s = event_log.REPEAT_S
        log(logging.WARNING, "peer_rejected")
    assert [event.get("left_out") for event in events(stream)] == [None, 999]


def test_log__two_kinds_of_slips_at_once__both_are_shown() -> None:
    """The second one was only counted, and what is logged once for each kind was never seen."""
    slips = Slips()
    with shown(logging.INFO) as stream:
        for where in ("upkeep", "status", "upkeep"):
            with slips.contained(where):
                raise IndexError("again")
    assert [event["where"] for event in events(stream)] == ["upkeep", "status"]


def test_peers__strangers_that_come_and_go_all_day__are_mostly_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, stream = 0.0, io.StringIO()
    monkeypatch.setattr("sfnode.node.watching.network_news.time.monotonic", lambda: now_s)
    news = NetworkNews(Reporter(is_json=True, stream=stream), lambda peer: peer, agent="sfnode/0.1.0")
    for second in range(24 * 3600):
        now_s = float(second)
        news.tell_of_peer(PeerJoined(peer=PeerId(str(second))))
        news.tell_of_peer(PeerLeft(peer=PeerId(str(second)), reason="garbage"))
    joined, left = ([each for each in events(stream) if each["event"] == name] for name in ("peer_joined", "peer_left"))
    assert [len(joined), len(left)] == [1_503] * 2 and len(stream.getvalue()) < 500_000
    assert "left_out" not in left[50] and (left[-1]["left_out"], left[-1]["reason"]) == (59, "garbage")


def test_log__failure__carries_its_traceback() -> None:
    with shown(logging.INFO) as stream:
        try:
            raise ValueError("a bug of ours")
        except ValueError:
            log(logging.ERROR, "slip", is_failure=True)
            log(logging.DEBUG, "not shown", is_failure=True)
            log(logging.WARNING, "connection_failed", is_failure=True)
    bug, peers_fault = events(stream)
    assert bug["error"] == "ValueError('a bug of ours')" and "Traceback" in bug["traceback"]
    assert peers_fault["error"] == bug["error"] and "traceback" not in peers_fault


def test_log__nobody_asked_for_it__prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    log(logging.ERROR, "slip")
    assert capfd.readouterr() == ("", "")
