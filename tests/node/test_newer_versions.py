"""A neighbour's version: said where it is newer, and never more often than a liar may make a node speak."""

from __future__ import annotations

import io
import json

import pytest

from sfnode import __version__
from sfnode.network.network_config import NetworkConfig
from sfnode.node.watching.network_news import NewerVersions
from sfnode.reporter import Reporter


def said(*looks: tuple[str, ...]) -> list[str]:
    """The versions that a node of 0.9.1 reports."""
    stream = io.StringIO()
    versions = NewerVersions(Reporter(is_json=True, stream=stream), own="sfnode/0.9.1")
    for agents in looks:
        versions.look(agents)
    return [json.loads(line)["version"] for line in stream.getvalue().splitlines()]


def test_agent__of_this_node__has_its_version() -> None:
    assert NetworkConfig().agent == f"sfnode/{__version__}"


def test_newer_versions__newest_of_the_neighbours__is_said_once() -> None:
    agents = ("sfnode/0.9.1", "sfnode/0.10.0", "sfnode/0.9.2", "other/7.0.0")
    assert said(agents, agents, ("sfnode/0.9.3",), ("sfnode/1.0.0",)) == ["0.10.0", "1.0.0"]


@pytest.mark.parametrize("agent", ["", "sfnode", "sfnode/0.9.0", "sfnode/0.9.1", "sfnode/1.0", "sfnode/1.0.0\x1b[31m"])
def test_newer_versions__older_equal_or_nonsense__is_not_said(agent: str) -> None:
    assert said((agent,), ()) == []


def test_newer_versions__neighbour_that_counts_up__is_heard_a_few_times_only() -> None:
    assert said(*((f"sfnode/{number}.0.0",) for number in range(1, 50))) == ["1.0.0", "2.0.0", "3.0.0"]
