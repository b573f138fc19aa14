"""Traces of the node machine: each rule that they show, switched off in the JavaScript node, makes one of them fail."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from protocol.events import Effect, Event
from tests.conformance import reader
from tests.conformance.switched import need_node, rules_switched_off
from tests.vectors.catalogue import FILES, FOLDER
from tests.vectors.runs import EXAMPLE
from tests.vectors.trace_recorder import Story

BYTES_MAX = 1_500_000
TRACES = {name: json.loads((FOLDER / name).read_text("utf-8")) for name in FILES if name.startswith("traces_")}
SPEC = (FOLDER.parent / "SPEC.md").read_text("utf-8")
# Sections of the node machine of which every numbered rule has a switch; what 9.5 says of bytes is in snapshots.json.
SECTIONS = ("8.4", "9.1", "9.2", "9.6")
OTHERS = set("7.3.1 7.3.2 7.3.3 7.3.4 7.6 7.7 8.3 8.4 8.5 9.1 9.5 9.5.6 9.5.7 9.5.8 9.5.9 9.6".split())


def handled() -> list[dict[str, Any]]:
    """Every event of every trace."""
    return [event for file in TRACES.values() for case in file["cases"] for event in case["expected"]["events"]]


@pytest.mark.slow  # hundreds of runs of the reader: `make test-all`
def test_switches__rules_of_the_node_machine__each_is_switched_off() -> None:
    switched = rules_switched_off("node_switches.mjs")
    assert set(switched) == {rule for section in SECTIONS for rule in rules_of(section)} | OTHERS


def rules_of(section: str) -> set[str]:
    body = re.split(r"\n#{2,3} ", SPEC.split(f"\n### {section} ")[1])[0]
    return {f"{section}.{number}" for number in re.findall(r"^(\d+)\. ", body, re.MULTILINE)}


def test_switches__no_trace_notices__is_said(tmp_path: Path) -> None:
    assert _switched_in(tmp_path, "") == [
        "9.1.1 | active authors are waited for | NOT NOTICED",
        "9.1.1 | those further behind are not | NOT NOTICED",
        "9.1.1 | two rounds | NOT NOTICED",
        "9.1.1 | what is needed depends on staleness | NOT NOTICED",
        "switches: 0 of 4 are noticed by a vector",
    ]


def test_switches__text_that_the_reader_has_no_more__is_said(tmp_path: Path) -> None:
    said = _switched_in(tmp_path, "behind !== 0")
    assert said[0].endswith("BROKEN: node_clock.mjs has 0 times, not once: if (behind > 0 && nowMs")


def _switched_in(folder: Path, instead: str) -> list[str]:
    """The table of one rule, with the trace of a node that is alone, and another text in the reader."""
    need_node()
    shutil.copytree(reader.READER, folder / "conformance")
    (folder / "vectors").mkdir()
    file = TRACES["traces_steps.json"]
    (folder / "vectors" / "traces_steps.json").write_text(json.dumps(file | {"cases": file["cases"][:1]}), "utf-8")
    clock = folder / "conformance" / "node_clock.mjs"
    clock.write_text(clock.read_text("utf-8").replace("behind > 0", instead or "behind > 0"), "utf-8")
    finished = reader.run_reader(str(folder / "conformance" / "node_switches.mjs"), "9.1.1")
    assert finished.returncode == 1
    return finished.stdout.splitlines()


def test_traces__events_and_effects_of_the_machine__each_occurs() -> None:
    for kinds, found in ((Event, {event["event"][0] for event in handled()}), (Effect, effects())):
        assert found == {kind.__name__ for kind in get_args(kinds)}


def effects() -> set[str]:
    return {effect[0] for event in handled() for effect in event["effects"]}


def test_traces__all_files__stay_of_moderate_size() -> None:
    assert sum((FOLDER / name).stat().st_size for name in TRACES) < BYTES_MAX


def test_traces__time__never_goes_back() -> None:
    for file in TRACES.values():
        for case in file["cases"]:
            times = [event["at_ms"] for event in case["expected"]["events"]]
            assert times == sorted(times), case["name"]
    with pytest.raises(AssertionError, match="9 comes after 10"):
        Story("backwards", EXAMPLE).ticks(10, 9)


def test_traces__parts__each_occurs_and_is_not_written_out() -> None:
    for name, file in TRACES.items():
        text = json.dumps(file["cases"])
        assert [part for part in file["parts"] if f'{{"part": {json.dumps(part)}}}' not in text] == [], name
        assert [part for part, data in file["parts"].items() if data in text] == [], name
