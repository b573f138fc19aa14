"""The figures for Prometheus: what they say, what they are called, and that the documents list them all."""

from __future__ import annotations

import re

import pytest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from sfnode.metrics import METRICS, Metric, exposition
from sfnode.status import Status
from tests import REPOSITORY
from tests.support.statuses import STATUS, changed


def figures(status: Status) -> dict[str, float]:
    families = text_string_to_metric_families(exposition(status).decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_exposition__of_a_status__says_what_it_says() -> None:
    told = figures(STATUS)
    wanted = ("sfnode_step", "sfnode_updates", "sfnode_loss_nats", "sfnode_received_bytes_total", "sfnode_run_info")
    assert [told[name] for name in wanted] == [120, 480, 0.5821, 120_000, 1]


def test_exposition__figure_that_there_is_not__has_no_line() -> None:
    assert set(figures(STATUS)) - set(figures(changed(STATUS, loss=None))) == {"sfnode_loss_nats"}


def test_exposition__name_with_quotes_and_line_breaks__stays_one_label() -> None:
    text = exposition(changed(STATUS, run='a"b\nsfnode_peers 99')).decode()
    assert figures(changed(STATUS, run='a"b\nsfnode_peers 99'))["sfnode_peers"] == 3
    assert r'run="a\"b\nsfnode_peers 99"' in text


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.name))
def test_metric__its_name__follows_the_rules_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"sfnode(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") is (metric.family is CounterMetricFamily)
    assert metric.text.endswith(".")


def test_metrics__in_the_documents__are_these_in_this_order() -> None:
    rows = re.findall(r"^\| `(sfnode_\w+)` \| (\w+) \| (.*) \|$", (REPOSITORY / "docs/metrics.md").read_text(), re.M)
    assert rows[1:] == [(metric.name, metric.family(metric.name, "").type, metric.text) for metric in METRICS]
    assert rows[0][0] == "sfnode_run_info"
