"""The verdicts of `make compose-test`, with an engine that only tells what it is told to."""

from __future__ import annotations

import json
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
    """Answers instead of `docker`: a health for each container, and one status for all."""

    compose: tuple[str, ...] = ()
    health: dict[str, str] = field(default_factory=dict)
    authors: int = 5

    def run_docker(self, *words: str) -> str:
        if words[0] == "inspect":
            return self.health.get(words[-1], "running healthy") + "\n"
        return json.dumps({"state_digest": "ab", "updates": 9, "authors": self.authors, "is_finished": True})


def test_equal__all_contributed__is_what_they_hold() -> None:
    assert wait_equal(ToldEngine(), CONTAINERS) == State(digest="ab", updates=9, authors=5, is_finished=True)


def test_equal__one_node_trained_alone__fails() -> None:
    with pytest.raises(CheckFailed, match="1 of 5 nodes contributed"):
        wait_equal(ToldEngine(authors=1), CONTAINERS)


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
