"""A key that is kept apart from the data: used through a link, by one node at a time, and never made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sfnode.network.policy import peer_of_author
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from tests.support.cli_calls import call
from tests.support.running_nodes import Joins, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


def test_join__key_elsewhere__is_used_and_stays_there(run_file: Path, joins: Joins, tmp_path: Path) -> None:
    key = tmp_path / "keys" / "me.key"
    key.parent.mkdir(mode=0o700)
    KeyFile(key).made_seed()
    author = KeyFile(key).signer().author.hex()
    node = joins("node", "--relay", "--run", run_file, "--key", key)
    node.wait_for_event("started")
    assert (node.directory / IDENTITY_FILE).readlink() == key
    said = call("join", "--data-dir", tmp_path / "second", "--relay", "--run", run_file, "--key", key)
    assert said.code == 1 and f"another node of this machine runs with the key in {key}" in said.stderr
    copy = shutil.copytree(node.directory, tmp_path / "copy", symlinks=True)  # with a copy of the key, too
    (copy / IDENTITY_FILE).unlink()
    shutil.copy2(key, copy / IDENTITY_FILE)
    said = call("join", "--data-dir", copy, "--relay")
    assert said.code == 1 and f"{copy / IDENTITY_FILE}, or with a copy of it" in said.stderr
    assert node.stop() == 0
    bootstrap = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_of_author(bytes.fromhex(author))}"
    alone = joins("copy", "--relay", "--bootstrap", bootstrap)
    assert alone.wait_for_event("own_address")["address"] == bootstrap
    assert alone.stop() == 0

    again = joins("node", "--relay")  # the link is remembered, and so the option need not be
    again.wait_for_event("started")
    wait_until(lambda: again.status().get("author") == author, "its status names the author")
    assert again.stop() == 0

    moved = Path(shutil.copytree(node.directory, tmp_path / "moved", symlinks=True))
    key.rename(key.with_name("new-place.key"))
    said = call("join", "--data-dir", moved, "--relay")
    assert said.code == 1 and f"the identity {author} has run on this directory" in said.stderr
    back = joins("moved", "--relay", "--key", key.with_name("new-place.key"))
    back.wait_for_event("started")
    assert back.stop() == 0


def test_join__key_that_is_missing_or_another__is_refused_and_nothing_is_made(run_file: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no.key"
    said = call("join", "--data-dir", tmp_path / "node", "--relay", "--run", run_file, "--key", missing)
    assert said.code == 1 and f"sfnode id new --out {missing}" in said.stderr
    assert not missing.exists() and not (tmp_path / "node" / IDENTITY_FILE).exists()

    KeyFile(tmp_path / "node" / IDENTITY_FILE).made_seed()
    KeyFile(tmp_path / "other.key").made_seed()
    other = tmp_path / "other.key"
    said = call("join", "--data-dir", tmp_path / "node", "--relay", "--run", run_file, "--key", other)
    assert said.code == 1 and "but this node is" in said.stderr
