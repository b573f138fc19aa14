"""The dashboard of deploy/grafana, against the metrics that there are and the places of its panels."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from sfnode.metrics.prometheus_text import METRICS
from tests import REPOSITORY


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    text = (REPOSITORY / "deploy" / "grafana" / "dashboard.json").read_text("utf-8")
    return dict(json.loads(text))


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_dashboard__metrics_in_it__exist_and_counters_are_shown_as_rates(board: dict[str, Any]) -> None:
    used = {name for expression in expressions(board) for name in re.findall(r"sfnode_\w+", expression)}
    assert len(used) > 10 and used <= {metric.name for metric in METRICS}
    counted = [expression for expression in expressions(board) if "_total" in expression]
    assert counted and all(re.search(r"(rate|increase)\(sfnode_\w+_total", expression) for expression in counted)


def test_dashboard__every_metric_that_an_alert_uses__is_shown(board: dict[str, Any]) -> None:
    alerts = (REPOSITORY / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
    watched = set(re.findall(r"sfnode_\w+", alerts)) - {"sfnode_is_finished", "sfnode_differing_peers"}
    shown = "\n".join(expressions(board))
    assert [name for name in sorted(watched) if name not in shown] == []


def test_dashboard__its_panels__have_ids_of_their_own_and_do_not_overlap(board: dict[str, Any]) -> None:
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = [one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at] for at, size in ("xw", "yh")]
        assert any(apart), (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
