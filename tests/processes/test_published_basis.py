"""A run with dense cores: the owner's node gets the file, every other node fetches it and ends equal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import SignedManifest
from sfnode.node.snapshot_files import SnapshotFiles
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.disk import HeldFile
from sfnode.storage.stored_basis import BASIS_FILE, read_bases
from tests.support.cli_calls import call
from tests.support.daemons import DATA, MODEL, demo_run, free_port, log_verify, run_sfnode, write_run
from tests.support.dense_runs import dense_demo_run
from tests.support.running_nodes import Joins, address_in, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
STEPS = 12


@pytest.fixture(scope="module")
def dense() -> tuple[SignedManifest, bytes]:
    """A short run of the embedded model, and its basis."""
    return dense_demo_run(steps=STEPS)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_join__bootstrap_only__fetches_the_basis_trains_and_serves_it_on(
    dense: tuple[SignedManifest, bytes], worker: Path, tmp_path: Path
) -> None:
    signed, data = dense
    write_run(signed, tmp_path / "test.run")
    (tmp_path / "owner.basis").write_bytes(data)
    _train(tmp_path, worker)
    verified = [log_verify(tmp_path / name) for name in ("owner", "second", "relay")]
    assert len({entry["state_digest"] for entry in verified}) == 1
    assert all(entry["ok"] and entry["authors"] == 2 and entry["void_slots"] == 0 for entry in verified)
    assert [(tmp_path / name / BASIS_FILE).read_bytes() == data for name in ("owner", "second", "relay")] == [True] * 3
    evaluated = run_sfnode("eval", "--data-dir", str(tmp_path / "second"), "--eval-data", DATA, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["state_digest"] == verified[0]["state_digest"]


@pytest.mark.process
def test_join__alone_in_a_run__each_of_its_messages_is_what_the_updates_before_it_give(
    dense: tuple[SignedManifest, bytes], worker: Path, tmp_path: Path
) -> None:
    """Nodes measured on the model of some rounds ago, and no figure of a simulation showed it."""
    signed, data = dense
    write_run(signed, tmp_path / "test.run")
    (tmp_path / "owner.basis").write_bytes(data)
    with Joins(tmp_path) as join:
        given = ("--run", tmp_path / "test.run", "--basis", tmp_path / "owner.basis", "--neighbours-min", 0)
        node = join("owner", *given, "--worker-socket", worker, "--model", MODEL)
        wait_until(lambda: node.status().get("is_finished"), "it has finished", 120.0)
        assert node.stop() == 0
    audited = call("audit", tmp_path / "owner", "--messages", STEPS, "--json")
    found = json.loads(audited.stdout)["messages"]
    assert [each["deviation"] for each in found] == [0.0] * STEPS, audited.error


def _train(folder: Path, worker: Path) -> None:
    """Owner, a second author that knows the owner only, and a relay that knows the second only."""
    ports = {name: free_port() for name in ("owner", "second")}
    owner, second = (address_in(folder / name, ports[name]) for name in ("owner", "second"))
    training = ("--worker-socket", worker, "--model", MODEL, "--neighbours-min", 1)
    with Joins(folder) as join:
        given = ("--run", folder / "test.run", "--basis", folder / "owner.basis")
        nodes = [join("owner", *given, *training, "--listen", f"/ip4/127.0.0.1/tcp/{ports['owner']}")]
        nodes[0].wait_for_event("started")
        listen = ("--listen", f"/ip4/127.0.0.1/tcp/{ports['second']}")
        nodes.append(join("second", "--bootstrap", owner, *training, *listen))
        fetched = nodes[1].wait_for_event("basis_fetched")
        assert Path(fetched["file"]) == folder / "second" / BASIS_FILE
        nodes[1].wait_for_event("started")
        nodes.append(join("relay", "--bootstrap", second, "--relay"))
        nodes[2].wait_for_event("basis_fetched")
        wait_until(lambda: all(node.status().get("is_finished") for node in nodes[:2]), "both have finished", 120.0)
        wait_until(lambda: len({str(node.status().get("ledger_root")) for node in nodes}) == 1, "equal ledgers")
        for node in nodes:
            assert node.stop() == 0
        progress = [event for event in nodes[1].events() if event["event"] == "basis_progress"]
        assert progress[-1]["received_bytes"] == progress[-1]["total_bytes"] == fetched_bytes(folder)


def fetched_bytes(folder: Path) -> int:
    return (folder / "owner.basis").stat().st_size


# --- what the operator is told


def test_join__basis_for_a_run_with_a_random_one__operator_error(tmp_path: Path) -> None:
    write_run(demo_run(steps=STEPS), tmp_path / "test.run")
    (tmp_path / "a.basis").write_bytes(b"x")
    given = ("--run", tmp_path / "test.run", "--basis", tmp_path / "a.basis", "--relay")
    assert "the run's basis is random" in call("join", *given, "--data-dir", tmp_path / "node").error


def test_join__basis_is_nowhere_or_another_or_damaged__operator_error(
    dense: tuple[SignedManifest, bytes], tmp_path: Path
) -> None:
    signed, data = dense
    write_run(signed, tmp_path / "test.run")
    (tmp_path / "a.basis").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    join = ("join", "--run", tmp_path / "test.run", "--relay", "--data-dir", tmp_path / "node")
    assert "join with --bootstrap" in call(*join).error
    another = call(*join, "--basis", tmp_path / "a.basis")
    assert "a.basis is not the run's basis: the SHA-256" in another.error
    assert not (tmp_path / "node" / BASIS_FILE).exists()
    (tmp_path / "node").mkdir(mode=0o700, exist_ok=True)
    (tmp_path / "node" / BASIS_FILE).write_bytes(data[:-1])
    assert f"{BASIS_FILE} is not the run's basis" in call(*join).error


@pytest.mark.process
def test_join__basis_on_the_disk_is_damaged__is_fetched_again(
    dense: tuple[SignedManifest, bytes], tmp_path: Path
) -> None:
    signed, data = dense
    write_run(signed, tmp_path / "test.run")
    (tmp_path / "owner.basis").write_bytes(data)
    port = free_port()
    (tmp_path / "second").mkdir(mode=0o700)
    (tmp_path / "second" / BASIS_FILE).write_bytes(data[:-1])
    with Joins(tmp_path) as join:
        given = ("--run", tmp_path / "test.run", "--relay")
        listen = ("--listen", f"/ip4/127.0.0.1/tcp/{port}")
        owner = join("owner", *given, "--basis", tmp_path / "owner.basis", *listen)
        owner.wait_for_event("started")
        second = join("second", *given, "--bootstrap", address_in(tmp_path / "owner", port))
        second.wait_for_event("basis_damaged")
        second.wait_for_event("started")
        assert (tmp_path / "second" / BASIS_FILE).read_bytes() == data
        for node in (owner, second):
            assert node.stop() == 0


# --- the file


def test_basis_file__read_in_parts__is_the_whole(dense: tuple[SignedManifest, bytes], tmp_path: Path) -> None:
    signed, data = dense
    path = DataDirectory(tmp_path).basis.store(signed.manifest, data, origin="test")
    file = HeldFile(path)
    parts = [file.read(start, 1_000) for start in range(0, file.total, 1_000)]
    assert (path, b"".join(parts), file.total) == (tmp_path / BASIS_FILE, data, len(data))
    assert file.read(file.total, 5) == file.read(1 << 32, 5) == b""
    read = read_bases(signed.manifest, path)
    assert [read.of(epoch, 0).u.tobytes() for epoch in (0, 3)] == [read.of(1, 0).u.tobytes()] * 2


def test_basis_file__missing_or_not_the_runs__operator_error(
    dense: tuple[SignedManifest, bytes], tmp_path: Path
) -> None:
    signed, data = dense
    files = SnapshotFiles(DataDirectory(tmp_path), Reporter())
    assert files.find(signed.manifest, signed.manifest.method.basis_sha256) is None
    with pytest.raises(OperatorError, match="the sender is not the run's basis"):
        DataDirectory(tmp_path).basis.store(signed.manifest, data[::-1], origin="the sender")
    other = b"sfnode/basis/3\0" + data[15:]
    named = replace(signed.manifest.method, basis_sha256=hashlib.sha256(other).hexdigest())
    with pytest.raises(OperatorError, match=r"this was made with another release of sfnode: .* make the run anew"):
        read_bases(replace(signed.manifest, method=named), other)
    with pytest.raises(OperatorError, match="a published basis, and it is not here"):
        read_bases(signed.manifest, None)
    assert list(tmp_path.iterdir()) == []
