"""`sfnode doctor --data-dir`: it takes what the node remembers, and says why a running one does not contribute."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfnode.doctor import model_check
from sfnode.doctor.data_directory_check import check_basis, check_speed
from sfnode.doctor.findings import Verdict
from sfnode.model_files.model_cache import FetchedModel
from sfnode.network.policy.addresses import peer_of_author
from sfnode.run import default_directory
from sfnode.run.node_toml import write_node_file
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from tests.cli.test_commands import SIGNED, STATUS
from tests.support.cli_calls import call
from tests.support.daemons import demo_run, free_ports
from tests.support.dense_runs import dense_demo_run
from tests.support.statuses import DETAIL, changed

PEER = peer_of_author(bytes(31) + b"\1")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a node that runs."""
    store = Store(DataDirectory(tmp_path / "node"), SIGNED)
    KeyFile(tmp_path / "node" / IDENTITY_FILE).made_seed()
    yield tmp_path / "node"
    store.close()


def findings(*arguments: object) -> dict[str, dict[str, str]]:
    """What doctor finds, by check."""
    told = json.loads(call("doctor", "--json", *arguments).stdout)
    return {row["check"]: row for row in told["checks"]}


def report(directory: Path, **changes: object) -> None:
    status = changed(STATUS, time=time.time(), **changes)
    (directory / STATUS_FILE).write_text(json.dumps(status.to_json()))


@pytest.mark.parametrize("is_there", [False, True])
def test_doctor__folder_of_a_node_to_be__is_no_failure(is_there: bool, tmp_path: Path) -> None:
    """Who checks a machine before joining, with the folder that the node shall have, read FAIL and got exit code 1."""
    if is_there:
        (tmp_path / "new").mkdir()
    outcome = call("doctor", "--json", "--data-dir", tmp_path / "new", "--relay")
    (found,) = (row for row in json.loads(outcome.stdout)["checks"] if row["check"] == "data directory")
    assert (outcome.code, found["verdict"]) == (0, "unknown"), found
    assert "--bootstrap or --run for a new one" in found["advice"]


def test_doctor__node_that_remembers_its_options__need_not_be_told_them_again(directory: Path) -> None:
    remembered, typed = (f"/ip4/127.0.0.1/tcp/{port}/p2p/{PEER}" for port in free_ports(2))
    report(directory)
    write_node_file(DataDirectory(directory), {"bootstrap": [remembered], "relay": True})
    found = findings("--data-dir", directory)
    assert "connection refused" in found[f"bootstrap {remembered}"]["text"]
    assert "device" not in found  # a relay needs none
    found = findings("--data-dir", directory, "--bootstrap", typed)
    assert f"bootstrap {typed}" in found and f"bootstrap {remembered}" not in found


def test_doctor__only_node_of_this_machine__is_examined_unless_another_is_meant(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sfnode doctor`, as the README has it, said that it knew no run."""
    monkeypatch.setattr(default_directory, "HOME", directory.parent)
    report(directory, peers=0)
    write_node_file(DataDirectory(directory), {"relay": True})
    assert "0 peers" in findings()["data directory"]["text"]
    typed = f"/ip4/127.0.0.1/tcp/{free_ports(1)[0]}/p2p/{PEER}"
    assert "data directory" not in findings("--bootstrap", typed, "--relay")
    Store(DataDirectory(directory.parent / "another"), SIGNED).close()
    assert "data directory" not in findings("--relay")


def test_doctor__model_of_the_owners_own_folder__comes_from_neighbours_or_is_here_already(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: it was said to be missing on every machine but the owner's."""
    monkeypatch.setattr(model_check, "find_devices", lambda: "torch not installed")
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    report(directory)
    found = findings("--data-dir", directory)["model files"]
    assert found["verdict"] == "warning" and "fetches it from the neighbours" in found["advice"]
    fetched = FetchedModel(SIGNED.manifest.model)
    fetched.folder.mkdir(parents=True)
    for file in SIGNED.manifest.model.files:
        (fetched.folder / file.name).write_bytes(b"")
    assert str(fetched.folder) in findings("--data-dir", directory)["model files"]["text"]
    (fetched.folder / "config.json").unlink()
    write_node_file(DataDirectory(directory), {"no-fetch-model": True})
    found = findings("--data-dir", directory)["model files"]
    assert found["verdict"] == "fail" and "--model is missing" in found["text"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"peers": 0}, "0 peers"),
        ({"is_admitted": False, "admission": "invite"}, "not admitted"),
        ({"is_admitted": False, "admission": "invite", "is_invitation_used": True}, "the string to join is used"),
        ({"excluded_from": 3}, "excluded by the owner from step 3 on"),
    ],
)
def test_doctor__node_that_is_not_well__is_a_warning_that_says_why(
    changes: dict[str, object], part: str, directory: Path
) -> None:
    report(directory, **changes)
    found = findings("--data-dir", directory, "--relay")["data directory"]
    assert found["verdict"] == "warning" and part in found["text"]


@pytest.mark.parametrize(
    ("directions", "round_s", "said"),
    [
        (8, 0.6, "the node makes all 8 measurements a round in the run's pace; the last round took it 0.6 s"),
        (
            3,
            12.5,
            "the node makes 3 of 8 measurements a round in the run's pace; the last round took it 12.5 s",
        ),
    ],
)
def test_doctor__node_that_has_measured__says_what_this_machine_gives(
    directions: int, round_s: float, said: str, directory: Path
) -> None:
    report(directory, detail=changed(DETAIL, directions=directions, round_s=round_s))
    found = check_speed(DataDirectory(directory))
    assert found is not None and found.verdict is Verdict.OK and found.text.startswith(said)


@pytest.mark.parametrize(
    "changes",
    [{"detail": None}, {"detail": changed(DETAIL, round_s=None)}, {"detail": DETAIL, "is_training": False}],
    ids=["no detail", "nothing measured", "relay"],
)
def test_doctor__node_that_has_measured_nothing__says_nothing_of_speed(
    changes: dict[str, object], directory: Path
) -> None:
    report(directory, **changes)
    assert check_speed(DataDirectory(directory)) is None


def test_check_basis__drawn_missing_damaged_and_whole__says_which(tmp_path: Path) -> None:
    signed, data = dense_demo_run(steps=4)
    held = DataDirectory(tmp_path)

    def found() -> tuple[Verdict, str]:
        finding = check_basis(held, signed.manifest)
        return finding.verdict, finding.text

    assert check_basis(held, demo_run(steps=4).manifest).verdict is Verdict.OK
    assert found()[0] is Verdict.UNKNOWN and "not here yet" in found()[1]
    held.basis.path.write_bytes(data[:-1])
    assert found()[0] is Verdict.FAIL and "is not the run's basis" in found()[1]
    held.basis.store(signed.manifest, data, origin="test")
    assert found() == (Verdict.OK, f"{held.basis.path} is the run's")
