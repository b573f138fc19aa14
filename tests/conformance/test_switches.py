"""Each rule of the specification, switched off in the JavaScript reader, fails a vector; and no rule is left out."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.conformance.spec_rules import items, sections, verdict_rules
from tests.conformance.switched import need_node, rules_switched_off

# Sections that say how something is computed. Those of the node (7.6, 8.3, 9.1, 9.2, 9.6) are not in the reader.
COMPUTING = (
    "1.1 1.2 1.3 1.4 1.5 1.6 2.1 2.2 2.3 2.4 3.1 3.2 3.3 4.1 4.2 4.3 4.4 4.5 4.6 4.7 5.1 5.2 5.3 5.4 5.5 5.6 "
    "6.1 6.2 7.1 7.2 7.3 7.4 7.5 7.7 8.1 8.2 8.4 8.7 8.8 8.9 9.3 9.4 9.5"
).split()
# Numbered rules without a verdict of their own.
NUMBERED = "2.3.1 2.3.2 2.3.3 2.3.4 8.1.2 8.4.4 8.4.5 8.4.6 9.4.4".split()


@pytest.mark.slow  # hundreds of runs of the reader: `make test-all`
def test_switches__every_rule_and_every_section_that_computes__is_switched_off() -> None:
    """One test: the table takes many seconds, and tests of one file may run in several processes."""
    switched = set(rules_switched_off("switches.mjs"))
    begun = {rule.split(" ")[0] for rule in switched}
    beginnings = {section for rule in begun for section in COMPUTING if f"{rule}.".startswith(f"{section}.")}
    assert verdict_rules() - switched == set()
    assert set(COMPUTING) - beginnings == set()
    assert set(NUMBERED) - begun == set()
    assert unknown(switched) == set()


def unknown(switched: set[str]) -> set[str]:
    """Rules that the specification does not have. One that was renumbered is named anew in its switch."""
    with_reason = {rule for rule in switched if " " in rule}
    return (with_reason - verdict_rules()) | (switched - with_reason - items() - sections())


def test_switches__no_vector_notices__is_said(tmp_path: Path) -> None:
    """Without the vectors of its rule, a switch is not noticed, and the command says so."""
    need_node()
    shutil.copytree(REPOSITORY / "protocol" / "conformance", tmp_path / "conformance")
    (tmp_path / "vectors").mkdir()
    whole = json.loads((REPOSITORY / "protocol" / "vectors" / "frames.json").read_text("utf-8"))
    kept = [case for case in whole["cases"] if "length 0" not in case["name"] and "bad one" not in case["name"]]
    (tmp_path / "vectors" / "frames.json").write_text(json.dumps(whole | {"cases": kept}), "utf-8")
    command = ["node", str(tmp_path / "conformance" / "switches.mjs"), "8.2.1"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 1
    assert "8.2.1 FRAME | frames without a message | NOT NOTICED" in finished.stdout
    assert finished.stdout.splitlines()[-1] == "switches: 3 of 4 are noticed by a vector"


def test_specification__rules_without_a_reason_or_in_no_list__are_not_counted() -> None:
    text = (
        "### 6.2 Rules\n[REJECT] `SIZE` here.\n1. [REJECT] `SEED`, `SIGNATURE`: a.\n   [IGNORE] `SLOT_VOID`: b.\n\n"
        "[REJECT] `FRAME` after the list.\n2. Nothing.\n### 6.3 None\nA [REJECT] in a text.\n"
        "## 10 Limits\n1. [REJECT] `BASIS`\n"
    )
    assert verdict_rules(text) == {"6.2.1 SIZE", "6.2.1 SEED", "6.2.1 SIGNATURE", "6.2.1 SLOT_VOID", "6.2.2 SIZE"}
    assert sections(text) == {"6.2", "6.3"} and items(text) == {"6.2.1", "6.2.2"}
