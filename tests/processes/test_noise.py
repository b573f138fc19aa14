"""A node with noise on its own rows: it trains beside one without, and counts across its lives. What is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.run.manifest import SignedManifest, sign_manifest
from sfnode import demo
from tests.support.cli_calls import Outcome, assert_teaches, call
from tests.support.daemons import MODEL, JoinProcess, demo_run, free_port, log_verify, run_sfnode, write_run
from tests.support.dense_runs import with_basis
from tests.support.manifests import OWNER
from tests.support.running_nodes import Joins, address_in, wait_for_updates, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
STEPS = 200  # a fast machine made 40 in the first life, before it was stopped
DATA = demo.data_file("reviews")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run with private data and dense cores; its basis lies beside it."""
    folder = tmp_path_factory.mktemp("private")
    signed, data = private_run(STEPS)
    write_run(signed, folder / "my.run")
    (folder / "my.basis").write_bytes(data)
    return folder / "my.run"


def private_run(steps: int) -> tuple[SignedManifest, bytes]:
    drawn = demo_run(steps=steps).manifest
    manifest, data = with_basis(replace(drawn, task=replace(drawn.task, data="private", data_sha256="")))
    return sign_manifest(manifest, OWNER), data


@pytest.mark.process
@pytest.mark.timeout(240)
def test_join__noise__trains_beside_a_node_without_and_counts_on_after_a_restart(
    private: Path, worker: Path, tmp_path: Path
) -> None:
    port = free_port()
    address = address_in(tmp_path / "noisy", port)
    own = ("--worker-socket", worker, "--model", MODEL, "--data", DATA)
    given = ("--run", private, "--basis", private.with_suffix(".basis"), "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    with Joins(tmp_path) as join:
        first = join("noisy", *given, *own, "--noise", "2")
        planned = first.wait_for_event("privacy")
        assert (planned["noise"], planned["uses"]) == (2.0, 0) and planned["epsilon_at_end"] > 1
        wait_for_updates(first)
        assert first.stop() == 0
        before = privacy_of(first)
        assert before["uses"] > 0 and 0 < before["epsilon"] <= planned["epsilon_at_end"]
        again = join("noisy", *given, *own)  # --noise is remembered
        assert again.wait_for_event("privacy")["uses"] >= before["uses"]
        other = join("plain", "--bootstrap", address, *own, "--neighbours-min", 1)
        nodes = (again, other)
        wait_until(lambda: all(node.status().get("is_finished") for node in nodes), "both have finished", 120.0)
        wait_until(lambda: len({str(node.status().get("ledger_root")) for node in nodes}) == 1, "equal ledgers")
        end = privacy_of(again)
        assert again.status()["own_updates"] > 0  # in this life; the row that was used most may be another one's
        assert before["uses"] <= end["uses"] <= end["uses_at_end"] <= planned["uses_at_end"]
        shown = run_sfnode("status", "--data-dir", str(tmp_path / "noisy")).stdout
        assert f"noise 2: epsilon {end['epsilon']:.1f} (delta 1e-05)" in shown
        assert other.status()["privacy"] is None
        assert [node.stop() for node in nodes] == [0, 0]
    verified = [log_verify(tmp_path / name) for name in ("noisy", "plain")]
    assert verified[0]["state_digest"] == verified[1]["state_digest"]
    assert all(entry["ok"] and entry["authors"] == 2 and entry["void_slots"] == 0 for entry in verified)


@pytest.mark.process
@pytest.mark.timeout(240)
def test_join__epsilon_max__pauses_before_it_is_exceeded(private: Path, worker: Path, tmp_path: Path) -> None:
    own = ("--worker-socket", worker, "--model", MODEL, "--data", DATA)
    given = ("--run", private, "--basis", private.with_suffix(".basis"), "--noise", "4", "--epsilon-max", "2.9")
    with Joins(tmp_path) as join:
        node = join("limited", *given, *own)
        assert node.wait_for_event("paused")["reason"] == "privacy"
        wait_until(lambda: "--epsilon-max is 2.9" in str(node.status()["paused"]), "the status says why")
        found = privacy_of(node)
        assert found["epsilon"] <= 2.9 < found["epsilon_at_end"] and node.status()["own_updates"] < STEPS
        assert node.stop() == 0


def privacy_of(node: JoinProcess) -> dict[str, float]:
    found: dict[str, float] = node.status()["privacy"]
    return found


# --- what is refused


Join = Callable[..., Outcome]


@pytest.fixture
def join(worker: Path, tmp_path: Path) -> Join:
    """``sfnode join`` on a new data directory; only for joins that must fail."""

    def run(run_file: Path, *arguments: object) -> Outcome:
        given = ("--data-dir", tmp_path / "node", "--worker-socket", worker, "--json", "--model", MODEL)
        return call("join", "--run", run_file, *given, "--data", DATA, *arguments)

    return run


def test_join__noise_on_public_rows__says_that_it_hides_nothing(join: Join, tmp_path: Path) -> None:
    manifest, _ = with_basis(demo_run(steps=STEPS).manifest)
    write_run(sign_manifest(manifest, OWNER), tmp_path / "public.run")
    assert_teaches(join(tmp_path / "public.run", "--noise", "1"), "--noise", "rows of one's own", "are public")


def test_join__noise_without_dense_cores__says_where_it_works(join: Join, tmp_path: Path) -> None:
    write_run(demo_run(steps=STEPS), tmp_path / "drawn.run")
    assert_teaches(join(tmp_path / "drawn.run", "--noise", "1"), "--noise", "dense cores only")


@pytest.mark.parametrize("given", [("--noise", "0"), ("--noise", "much"), ("--epsilon-max", "-1")])
def test_join__noise_that_is_no_number__says_what_is_one(private: Path, join: Join, given: tuple[str, str]) -> None:
    outcome = join(private, *given)
    assert outcome.code == 2 and "is not a number of 0.01 ... 10,000" in outcome.stderr


def test_join__limit_without_noise__says_what_is_missing(private: Path, join: Join) -> None:
    assert_teaches(join(private, "--epsilon-max", "8"), "--epsilon-max", "add --noise")


def test_join__noise_without_its_package__says_how_to_install(
    private: Path, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfnode.extras.find_spec", lambda name: None if name == "opendp" else name)
    assert_teaches(join(private, "--noise", "1"), "--noise needs opendp", "pip install 'sfnode[privacy]'")
