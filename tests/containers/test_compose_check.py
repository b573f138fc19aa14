"""The verdicts of `make compose-test`, with an engine that only tells what it is told to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.containers.__main__ import (
    NODES,
    CheckFailed,
    ContainerEngine,
    State,
    find_engine,
    main,
    wait_equal,
    wait_healthy,
)

CONTAINERS = {name: name for name in NODES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEngine(ContainerEngine):
    """Answers instead of `docker`: a health for each container, and statuses whose last one has 9 updates."""

    compose: tuple[str, ...] = ()
    health: dict[str, str] = field(default_factory=dict)
    authors: int = 5
    updates: Iterator[int] = field(default_factory=lambda: itertools.repeat(9))

    def run_docker(self, *words: str) -> str:
        if words[0] == "inspect":
            return self.health.get(words[-1], "running healthy") + "\n"
        updates = next(self.updates)
        return json.dumps(
            {"state_digest": "ab", "updates": updates, "authors": self.authors, "is_finished": updates == 9}
        )


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.containers.__main__.LIMIT_S", 0.05)
    monkeypatch.setattr("tests.containers.__main__.POLL_S", 0.02)


def test_equal__all_contributed__is_what_they_hold() -> None:
    assert wait_equal(ToldEngine(), CONTAINERS) == State(digest="ab", updates=9, authors=5, is_finished=True)


def test_equal__one_node_trained_alone__fails() -> None:
    with pytest.raises(CheckFailed, match="1 of 5 nodes contributed"):
        wait_equal(ToldEngine(authors=1), CONTAINERS)


@pytest.mark.usefixtures("short_limit")
def test_equal__steps_take_longer_than_the_limit__is_waited_for() -> None:
    """On busy cores the nodes made one step a second: 1,000 steps take longer than the ten minutes of the check."""
    slow = ToldEngine(updates=(call // len(NODES) for call in itertools.count()))
    assert wait_equal(slow, CONTAINERS).updates == 9


@pytest.mark.usefixtures("short_limit")
def test_equal__no_new_update_before_the_last_step__fails() -> None:
    with pytest.raises(CheckFailed, match="no new update"):
        wait_equal(ToldEngine(updates=itertools.repeat(8)), CONTAINERS)


def test_healthy__a_container_has_ended__fails_at_once() -> None:
    with pytest.raises(CheckFailed, match="'worker-2': 'exited unhealthy'"):
        wait_healthy(ToldEngine(health={"worker-2": "exited unhealthy"}), CONTAINERS)


def test_engine__none_on_this_machine__is_said_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_engine() == ("there is no `docker` command here", None)
    assert main() == 0
    assert "compose-test SKIPPED, nothing was tested" in capsys.readouterr().err
