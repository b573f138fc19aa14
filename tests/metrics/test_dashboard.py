"""The dashboard of deploy/grafana, against the metrics that there are and the places of its panels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfnode.metrics import METRICS, exposition
from tests import REPOSITORY
from tests.support.daemons import free_port
from tests.support.statuses import STATUS

PROMETHEUS = shutil.which("prometheus")
LIMIT_S = 60.0


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


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Callable[[str], list[Any]]]:
    """A question to a real Prometheus, with deploy's settings but a scrape a second of one node's figures."""
    settings = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (tmp_path / "metrics").write_bytes(exposition(STATUS))
    node = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    settings["global"]["scrape_interval"] = "1s"
    settings["rule_files"] = [str(REPOSITORY / "deploy" / "prometheus" / "alerts.yml")]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{node.server_port}"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    address = f"127.0.0.1:{free_port()}"
    options = {"config.file": tmp_path / "prometheus.yml", "storage.tsdb.path": tmp_path, "web.listen-address": address}
    command = [str(PROMETHEUS), *(f"--{name}={value}" for name, value in options.items())]

    def ask(expression: str) -> list[Any]:
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{question}", timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])

    threading.Thread(target=node.serve_forever, daemon=True).start()
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as prometheus:
        yield ask
        prometheus.terminate()
    node.shutdown()
    node.server_close()


@pytest.mark.process
@pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: no panel was asked for data")
def test_dashboard__each_panel_asked_in_a_real_prometheus__has_data(
    board: dict[str, Any], asked: Callable[[str], list[Any]]
) -> None:
    empty = [expression.replace("$job", "sfnode") for expression in expressions(board)]
    deadline = time.monotonic() + LIMIT_S
    while empty and time.monotonic() < deadline:
        time.sleep(1.0)
        try:
            empty = [expression for expression in empty if not asked(expression)]
        except OSError:  # it does not listen yet
            continue
    assert empty == []
