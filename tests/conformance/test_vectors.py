"""The conformance vectors are what the reference gives, hold every rule, and agree with arithmetic done another way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import IgnoreReason, RejectReason
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import CLASSES
from tests.vectors import edwards
from tests.vectors.catalogue import COMMAND, FILES, FOLDER, rendered, stale_files
from tests.vectors.manifest_cases import CHOICES, HASHES, LISTS, NUMBERS, TEXTS, base
from tests.vectors.notation import against, as_bytes, compact

BYTES_MAX = 3_166_000
README = (FOLDER / "README.md").read_text("utf-8")
SPEC = (FOLDER.parent / "SPEC.md").read_text("utf-8")
CASES = {name: json.loads((FOLDER / name).read_text("utf-8"))["cases"] for name in FILES}


def cases(file: str, function: str) -> list[dict[str, Any]]:
    found = [case for case in CASES[file] if case["function"] == function]
    assert found
    return found


def reasons(value: Any) -> set[str]:
    """Every reason that stands anywhere in a file."""
    if isinstance(value, dict):
        own = {value["reason"]} if isinstance(value.get("reason"), str) else set()
        return own.union(*map(reasons, value.values()))
    return set().union(*map(reasons, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", FILES)
def test_vectors__checked_in_file__is_what_the_reference_gives(name: str) -> None:
    assert rendered(name) == (FOLDER / name).read_text("utf-8"), f"if the change is meant, renew it with: {COMMAND}"


def test_vectors__another_file_or_a_changed_one__is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.vectors.catalogue.FOLDER", tmp_path)
    monkeypatch.setattr("tests.vectors.catalogue.FILES", {"hashing.json": FILES["hashing.json"]})
    assert stale_files() == ["hashing.json"]
    (tmp_path / "hashing.json").write_text(rendered("hashing.json").replace('"step": 7', '"step": 8'))
    (tmp_path / "old.json").write_text("{}")
    assert stale_files() == ["hashing.json", "old.json"]
    (tmp_path / "hashing.json").write_text(rendered("hashing.json"))
    assert stale_files() == ["old.json"]


def test_vectors__all_files__stay_of_moderate_size() -> None:
    files = [name for name in FILES if not name.startswith("traces_")]  # those have a bound of their own
    assert sum((FOLDER / name).stat().st_size for name in files) < BYTES_MAX


def test_vectors__reasons__each_has_one() -> None:
    assert reasons(CASES) == {reason.name for reason in (*RejectReason, *IgnoreReason)}


@pytest.mark.parametrize(
    ("file", "function", "wanted"),
    [
        (
            "envelopes.json",
            "decode",
            "SIZE STEP_RANGE STEP_ALIGNMENT SCALAR_RANGE SCALAR_ENERGY SEED AUTHOR_KEY SIGNATURE",
        ),
        ("manifests.json", "decode_run", "SIZE MANIFEST_FORMAT MANIFEST_FIELD MANIFEST_SIGNATURE"),
        ("messages.json", "decode", "SIZE FRAME MESSAGE_KIND MESSAGE_FIELD MESSAGE_NOT_CANONICAL"),
        ("frames.json", "cut", "FRAME"),
        ("sessions.json", "session", "UNREQUESTED FRAME MESSAGE_KIND"),
        ("sessions.json", "parts", "UNREQUESTED MESSAGE_FIELD"),
        ("sync.json", "check_answer", "UNREQUESTED STATEMENT_FORMAT"),
        ("asking.json", "ask", "UNREQUESTED SIGNATURE"),
        ("subspace.json", "basis_file", "BASIS"),
        ("snapshots.json", "decode", "SNAPSHOT_FORMAT RUN_ID"),
        ("snapshots.json", "attestation", "SNAPSHOT_FORMAT AUTHOR_KEY AUTHOR_WORK SIGNATURE"),
        (
            "attestations.json",
            "table",
            "SNAPSHOT_FORMAT SIGNATURE ALREADY_HELD NOT_ADMITTED ATTESTATIONS_FULL",
        ),
        (
            "audits.json",
            "decode",
            "SIZE AUDIT_FORMAT RUN_ID SIGNATURE STEP_RANGE",
        ),
        (
            "logs.json",
            "read",
            "LOG_FORMAT MANIFEST_FIELD MANIFEST_SIGNATURE BASIS STATEMENT_FORMAT STATEMENT_SIGNATURE SIZE SIGNATURE",
        ),
        (
            "statements.json",
            "ledger",
            "ALREADY_HELD SLOT_VOID EXCLUDED NOT_ADMITTED AUTHOR_WORK STATEMENT_SIGNATURE STATEMENTS_FULL",
        ),
        (
            "ledgers.json",
            "ledger",
            "ALREADY_HELD SLOT_VOID TOO_EARLY AUTHORS_FULL SIZE STEP_RANGE SCALAR_RANGE SEED SIGNATURE",
        ),
    ],
)
def test_vectors__rules_of_one_decoder__each_has_one(file: str, function: str, wanted: str) -> None:
    assert reasons(cases(file, function)) == set(wanted.split())


def test_vectors__manifest_fields__each_has_its_bounds() -> None:
    covered = {row[0] for table in (NUMBERS, TEXTS, LISTS) for row in table} | set(HASHES) | set(CHOICES)
    # 1.3.3, 1.4.7, 1.4.14, 1.4.8; too long for one
    by_rule = {"format", "method.basis_sha256", "method.core_rows", "task.data_sha256", "tensors"}
    missing = {path for path in _leaves(base()) if path not in covered}
    assert missing == by_rule - {"tensors"}
    names = {case["name"] for case in CASES["manifests.json"]}
    assert {f"{path}: missing" for path in _leaves(base()) if not path.startswith("task.label_words")} <= names
    assert {f"rule 1.4.{number}" for number in range(1, 15)} - {"rule 1.4.9"} <= {name.split(":")[0] for name in names}


def _leaves(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}".strip("."))]
    if isinstance(value, list) and isinstance(value[0], dict):
        return _leaves(value[0], f"{path}.0")
    return [path]


def test_vectors__messages__every_kind_is_accepted_and_refused() -> None:
    said = cases("messages.json", "decode")
    accepted = {case["expected"].get("message") for case in said} - {None}
    assert accepted == {each.__name__ for each in CLASSES}
    assert {case["name"].split(":")[0] for case in said if case["expected"]["verdict"] == "REJECT"} >= accepted
    assert max(len(as_bytes(case["input"]["data"])) for case in said) > FRAME_BYTES_MAX


def test_vectors__ledgers__all_orders_of_the_same_records_end_equal() -> None:
    (ordered,) = [case for case in CASES["ledgers.json"] if case["name"].startswith("orders")]
    ends = [run[-1]["look"] for run in ordered["expected"]["runs"]]
    assert len(ends) == 4 and all(end == ends[0] for end in ends) and ends[0]["void_slots"] == 3


def test_vectors__ed25519__agree_with_integer_arithmetic() -> None:
    for case in cases("ed25519.json", "author_key"):
        key = bytes.fromhex(case["input"]["key"])
        assert edwards.is_author_key(key) is case["expected"]["is_valid"], case["name"]
    for case in cases("ed25519.json", "verify"):
        key, message, signature = (bytes.fromhex(case["input"][part]) for part in ("key", "message", "signature"))
        assert edwards.is_signed(key, message, signature) is case["expected"]["is_valid"], case["name"]


def test_vectors__ed25519__tell_verifiers_with_the_cofactor_apart() -> None:
    """A libsodium that multiplies by the cofactor would pass these: it must not be built in unnoticed."""
    only_with = [case for case in cases("ed25519.json", "verify") if "only with the cofactor" in case["name"]]
    assert len(only_with) >= 15 and not any(case["expected"]["is_valid"] for case in only_with)
    records = [case for case in cases("envelopes.json", "decode") if "only with the cofactor" in case["name"]]
    assert [case["expected"]["reason"] for case in records] == ["SIGNATURE"]


def test_readme__functions_and_files__are_those_of_the_vectors() -> None:
    for name, listed in CASES.items():
        section = README.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert {
            function for function in {case["function"] for case in listed} if f"`{function}`" not in section
        } == set()
    assert README.count("\n## ") == len(FILES) + 1


def test_specification__table_of_vectors__is_that_of_the_files() -> None:
    table = re.findall(r"^\| `(\w+\.json)` \| ([\w, ]+) \|", SPEC.split("\n## 13 ")[1], re.MULTILINE)
    told = {name: set(functions.split(", ")) for name, functions in table}
    assert told == {name: {case["function"] for case in listed} for name, listed in CASES.items()}


def test_readme__worked_numbers_of_the_specification__stand_in_the_vectors() -> None:
    vectors = "".join((FOLDER / name).read_text("utf-8") for name in FILES)
    for number in (
        "b815b1ad7a7f43eac254eb73b66057b6d8ab3e7e8648b71df4a06c1794dcf3fe",
        "669780d2e34f4b19",
        "3e28ee10b0b3b0fd5249edda95db29b27b5cab295de00094cf7207910c7261a0",
        "b3f2ee5e594089423699d0b76cce96697bc70b1774839a3cdcdc0ddfe7dac93c",
        "df14b9bc204b927db554be650bd681cdb5bb7975336ea16f2937adf60a042bf4",
        "9201cd012c",
    ):
        assert number in SPEC and number in vectors


@pytest.mark.parametrize("data", [b"", b"abc", b"{" + b"x" * 99 + b"\n" + b"\0" * 20, bytes(range(256)) * 2])
def test_notation__bytes_written_short__are_the_same_bytes(data: bytes) -> None:
    assert as_bytes(compact(data, b"\0", b"x")) == data
    assert as_bytes(compact(data, b"x", readable=False)) == data
    for shared in (data, data[:7] + b"changed" + data[9:], data[10:]):
        assert as_bytes(against(data, shared, b"x"), data) == shared
