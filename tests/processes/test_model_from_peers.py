"""A model that lies in no hub: its files come from the neighbours, and whoever has them trains and gives them on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protocol.run.manifest import SignedManifest
from sfnode import demo
from sfnode.model_files.model_cache import FetchedModel
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import demo_run, free_ports, log_verify, run_sfnode, write_run
from tests.support.running_nodes import Joins, address_in, wait_for_updates, wait_until

pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(180)]
pytest_plugins = ("tests.support.node_fixtures",)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The owner's folder."""
    folder = tmp_path_factory.mktemp("models") / "own-model"
    shutil.copytree(demo.model_folder(), folder)
    return folder


@pytest.fixture(scope="module")
def run(model: Path) -> SignedManifest:
    return demo_run(steps=100_000, model=str(model))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_joiner__model_lies_in_no_hub__gets_it_from_its_neighbours_and_trains(
    run: SignedManifest, model: Path, worker: Path, joins: Joins, tmp_path: Path
) -> None:
    path, (first, second) = tmp_path / "test.run", free_ports(2)
    write_run(run, path)
    addresses = [address_in(tmp_path / name, port) for name, port in (("owner", first), ("friend", second))]
    given = ("--run", path, "--worker-socket", worker)
    listen = "/ip4/127.0.0.1/tcp/{}"
    joins("owner", *given, "--model", model, "--listen", listen.format(first)).wait_for_event("model_shared")
    friend = joins("friend", *given, "--model", model, "--listen", listen.format(second), "--bootstrap", addresses[0])
    friend.wait_for_event("model_shared")
    joiner = joins("joiner", *given, "--bootstrap", addresses[0], "--bootstrap", addresses[1])
    fetched = joiner.wait_for_event("model_fetched")
    size = sum(file.bytes for file in run.manifest.model.files)
    assert size < fetched["bytes"] < 1.01 * size + 2 * (1 << 20)
    found = FetchedModel(run.manifest.model).folder
    assert {file.name: file.read_bytes() for file in found.iterdir()} == {
        file.name: (model / file.name).read_bytes() for file in found.iterdir()
    }
    wait_for_updates(joiner)
    assert joiner.wait_for_event("model_shared")["bytes"] == size and joiner.status()["model"] is None
    for node in (joiner, friend):
        node.kill()
    again = joins("joiner", *given, "--bootstrap", addresses[0])
    wait_for_updates(again)
    assert not [event for event in again.events() if event["event"] == "model_fetching"]
    again.kill()
    assert log_verify(tmp_path / "joiner")["void_slots"] == 0


def test_joiner__neighbour_keeps_the_model__relays_and_says_what_it_waits_for(
    run: SignedManifest, model: Path, worker: Path, joins: Joins, tmp_path: Path
) -> None:
    path, (port,) = tmp_path / "test.run", free_ports(1)
    write_run(run, path)
    address = address_in(tmp_path / "owner", port)
    listen = f"/ip4/127.0.0.1/tcp/{port}"
    given = ("--run", path, "--worker-socket", worker)
    owner = joins("owner", *given, "--model", model, "--listen", listen, "--no-share-model")
    joiner = joins("joiner", *given, "--bootstrap", address)
    wait_until(lambda: joiner.status().get("model"), "the joiner looks for the model")
    wait_for_updates(owner)
    held = joiner.status()["updates"]
    wait_until(lambda: joiner.status()["updates"] > held, "the joiner takes in what others send")
    shown = run_sfnode("status", "--data-dir", str(tmp_path / "joiner")).stdout
    assert "waiting for a peer that has the model: 0 of 1 MB" in shown
    assert joiner.status()["own_updates"] == 0 and joiner.status()["model"]["stage"] == "fetching"


def test_joiner__takes_nothing_from_neighbours__is_told_to_name_its_copy(run: SignedManifest, tmp_path: Path) -> None:
    path = tmp_path / "test.run"
    write_run(run, path)
    outcome = call("join", "--run", path, "--data-dir", tmp_path / "node", "--no-mdns", "--no-fetch-model")
    assert_teaches(outcome, "--model is missing", "Give the path of your copy")
