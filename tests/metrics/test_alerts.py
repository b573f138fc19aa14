"""The alert rules of deploy/prometheus: by Prometheus' own tool, and against the metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from sfnode.metrics import METRICS
from tests import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "prometheus"


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=["config", "rules", "tests"],
)
def test_prometheus_files__read_by_the_real_tool__hold(words: tuple[str, ...]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine, so alert rules are not tried: apt-get install prometheus")
    result = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_alerts__metrics_in_them__exist() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    used = {name for rule in rules for name in re.findall(r"sfnode_\w+", rule["expr"])}
    assert used and used <= {metric.name for metric in METRICS}


def test_alerts__each_of_them__has_a_test_that_raises_it() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    cases = yaml.safe_load((FOLDER / "alerts_test.yml").read_text("utf-8"))["tests"]
    raised = [each["alertname"] for case in cases for each in case["alert_rule_test"] if each["exp_alerts"]]
    assert raised == [rule["alert"] for rule in rules]
