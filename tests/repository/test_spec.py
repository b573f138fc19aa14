"""SPEC.md says what the code does: numbers, names and references agree, so that neither changes without the other."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from protocol import events, limits, timings, wire
from protocol.crypto.keys import Signer
from protocol.errors import IgnoreReason, RejectReason
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run import reward
from protocol.schema import Malformed
from protocol.wire import CLASSES
from tests import REPOSITORY
from tests.support.ledgers import admit, claim, exclude
from tests.support.manifests import small_manifest
from tests.support.sample_messages import MESSAGES

SPEC = (REPOSITORY / "protocol" / "SPEC.md").read_text("utf-8")
INVITED = small_manifest(admission="invite")
SOURCES = sorted(
    [
        *(REPOSITORY / "protocol").rglob("*.py"),
        *(REPOSITORY / "sfnode").rglob("*.py"),
        *(REPOSITORY / "tests").rglob("*.py"),
    ]
)


def numbers_of_spec() -> set[str]:
    """Every section ("7.2") and every numbered rule in it ("9.1.3")."""
    found, section = set(), ""
    for line in SPEC.splitlines():
        if heading := re.match(r"#{2,3} (\d+(?:\.\d+)?) ", line):
            section = heading[1]
            found.add(section)
        elif section and (rule := re.match(r"(\d+)\. ", line)):
            found.add(f"{section}.{rule[1]}")
    return found


def rows(heading: str) -> list[list[str]]:
    """Cells of the tables in the section with this heading, without header rows."""
    body = SPEC.split(f"\n{heading}", 1)[1]
    body = re.split(r"\n#{2,3} \d", body)[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def test_references__from_code_to_the_specification__lead_somewhere() -> None:
    used = {path.name: numbers_in(path.read_text("utf-8")) for path in SOURCES}
    known = numbers_of_spec()
    assert {name: numbers - known for name, numbers in used.items() if numbers - known} == {}
    important = {"1.4", "2.1", "4.5", "5.2", "6.2.6", "7.2", "8.4.3", "9.1.1", "9.2.4"}
    assert important <= set().union(*used.values())


def numbers_in(source: str) -> set[str]:
    lists = re.findall(r"SPEC (\d[\d.]*(?:, \d[\d.]*)*)", source)
    return {number.rstrip(".") for numbers in lists for number in numbers.split(", ")}


def test_references__inside_the_specification__lead_somewhere() -> None:
    inside = set(re.findall(r"\b(?:of|by|with|in|rule|SPEC) (\d{1,2}\.\d(?:\.\d+)?)\b(?!\w)", SPEC))
    inside |= set(re.findall(r"\((\d{1,2}\.\d(?:\.\d+)?)\)", SPEC))
    assert len(inside) > 10
    assert inside - numbers_of_spec() == set()


def test_limits__of_the_code__stand_in_the_table() -> None:
    table = {row[0].strip("`"): int(row[1]) for row in rows("## 10 Limits")[1:]}
    assert table == {name: value for name, value in (vars(limits) | vars(timings)).items() if name.isupper()}


def test_reasons__of_the_code__stand_in_the_table() -> None:
    cells = [cell for row in rows("### 8.6 Reasons")[1:] for cell in zip(row[::2], row[1::2], (0, 0, 1), strict=True)]
    told: dict[tuple[int, int], str] = {
        (column, int(number)): name.split("`")[1] for number, name, column in cells if number
    }
    reject = {(0, reason.value): reason.name for reason in RejectReason}
    assert told == reject | {(1, reason.value): reason.name for reason in IgnoreReason}


def test_messages__of_the_code__stand_in_the_table_with_their_fields() -> None:
    table = {int(row[0]): (row[1], row[2]) for row in rows("### 8.1 Messages")[1:]}
    assert list(table) == list(range(len(CLASSES)))
    for number, declared in enumerate[Any](CLASSES):
        name, told = table[number]
        assert name == declared.__name__
        assert [field.split()[0] for field in told.split("; ") if field] == list(declared.__dataclass_fields__)


def head_rows(first: str) -> list[list[str]]:
    """Cells of the table before the first section whose header row begins with these cells."""
    table = SPEC.split("\n---\n", 1)[0].split(f"\n{first}", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_terms__of_the_table__are_used_where_it_says() -> None:
    table = head_rows("| term |")
    assert {"held", "counts", "live", "active", "at work", "heard of", "finished", "over"} <= {row[0] for row in table}
    for term, _, number in table:
        section = re.split(r"\n#{2,3} \d", SPEC.split(f"\n### {number} ", 1)[1])[0].lower()
        assert re.search(rf"\b{term}\b", section), (term, number)


def test_standing__of_every_section_that_nodes_have_in_common__is_said_once() -> None:
    told = [number for _, numbers, _ in head_rows("| | sections |") for number in re.findall(r"\d\.\d", numbers)]
    assert sorted(told) == sorted(number for number in numbers_of_spec() if re.fullmatch(r"[789]\.\d", number))


def test_events_and_effects__of_the_code__are_listed() -> None:
    listed = re.search(r"\nEvents: (.*?)\.\n.*\nEffects: (.*?)\.\n", SPEC, re.DOTALL)
    assert listed is not None
    for text, declared in zip(listed.groups(), (events.Event, events.Effect), strict=True):
        assert re.split(r",\s", text) == [each.__name__ for each in get_args(declared)]


def test_statements__of_each_kind__have_the_length_of_the_table() -> None:
    table = {
        int(row[0].split()[0].partition("...")[0]): (row[1], int(row[2])) for row in rows("### 7.7 Statements")[1:]
    }
    made = [admit(INVITED, 1), exclude(INVITED, 1, 3), claim(INVITED, 1, 1)]
    assert {data[0]: len(data) for data in made} == {kind: length for kind, (_, length) in table.items()}
    for layout, length in table.values():
        fields = [int(size) for size in re.findall(r" (\d+)(?: bytes)?\b", layout.replace("u32(step)", " 4"))]
        assert 1 + sum(fields) == length


def leaves(data: Any, path: str = "") -> list[str]:
    if not isinstance(data, dict):
        return [path]
    return [leaf for key, value in data.items() for leaf in leaves(value, f"{path}.{key}" if path else key)]


def test_manifest_fields__of_the_code__stand_in_the_table() -> None:
    told = {name for row in rows("### 1.1 Fields")[1:] for name in re.findall(r"`([\w.\[\]]+)`", row[0])}
    held = set(leaves(json.loads(small_manifest().canonical)))
    assert held <= told
    assert {name for name in told if "[]" not in name} == held


def test_checks_of_rewards__of_the_code__stand_in_the_table() -> None:
    with pytest.raises(Malformed, match="known are ") as raised:
        reward.parse_reward('{"check": {"": 0}, "samples": 2, "tokens": 1}')
    known = str(raised.value).rpartition("known are ")[2].split(", ")
    assert {row[0].split('"')[1] for row in rows("### 1.6 Rewards")[1:]} == set(known)


def test_examples__of_manifest_record_and_hello__are_those_of_the_code() -> None:
    manifest = small_manifest()
    assert manifest.canonical.decode() in SPEC and manifest.run_id.hex() in SPEC
    record = EnvelopeCodec(manifest).seal(Signer(bytes(32)), 7, (-300,)).record.hex()
    hello = (
        wire.encode(MESSAGES[0]).hex().replace("c420" + "00" * 32, "c42000..00")
    )  # of this version: nodes refuse any other
    condensed = re.sub(r"[`\s]", "", SPEC)
    assert record in condensed and hello in condensed


@pytest.mark.parametrize(
    "test_file",
    ["tests/protocol/test_generator.py", "tests/protocol/test_ledger.py", "tests/protocol/test_coefficients.py"],
)
def test_examples__hexadecimal_ones_in_tests__are_those_of_the_specification(test_file: str) -> None:
    text = re.sub(r'"\s*"', "", (REPOSITORY / test_file).read_text("utf-8"))
    condensed = re.sub(r"[`\s]", "", SPEC)
    examples = re.findall(r'"((?:[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{64}))"', text)
    assert examples and all(example in condensed for example in examples if example != "f" * 8)


def test_domains__in_the_code__stand_in_the_specification() -> None:
    used = {
        tag
        for path in (REPOSITORY / "protocol").rglob("*.py")
        for tag in re.findall(r'"(sfnode/[^"]+)"', path.read_text("utf-8"))
    }
    assert len(used) >= 10
    assert {tag for tag in used if tag not in SPEC} == set()
