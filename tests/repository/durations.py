"""How long each test file takes, as `durations.json` beside this file tells: seconds of a run on two cores. Written by
`python -m tests.repository.everything --store`; nothing fails when it is old, only estimates and orders get worse."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

STORE: Final = Path(__file__).with_name("durations.json")
CORES: Final = "cores"  # tests that compute
PROCESSES: Final = "processes"  # tests that are marked `process`


def stored_seconds(kind: str, store: Path = STORE) -> dict[str, float]:
    """Test file -> seconds of its tests of this kind."""
    table: dict[str, dict[str, float]] = json.loads(store.read_text("utf-8")) if store.exists() else {}
    return table.get(kind, {})


def seconds_in(report: Path) -> dict[str, float]:
    """The same from the JUnit report that `pytest --junitxml` has written."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[case.attrib["classname"].replace(".", "/") + ".py"] += float(case.attrib["time"])
    return {path: round(total, 1) for path, total in sorted(seconds.items())}


def store_seconds(reports: Mapping[str, Path], store: Path = STORE) -> None:
    """Write the table anew from one report for each kind."""
    table = {kind: seconds_in(report) for kind, report in reports.items()}
    store.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")
