"""Where a node keeps its state follows from the run's name, which is a stranger's free text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sfnode.run import find_data_directory
from tests.support.manifests import small_manifest

HOSTILE = [
    "/etc/cron.d",
    "../../.ssh",
    "..",
    ".hidden",
    "a/b",
    "a\\b",
    "x\0y",
    "\x1b[2J",
    "~root",
    "-rf",
    "",
    "ключ",
    "ü" * 500,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_find_data_directory__hostile_name__is_one_plain_folder_below_home(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: the name went into the path as it was, and a bootstrap decides what the run is called."""
    manifest = replace(small_manifest(), name=name)
    monkeypatch.setenv("HOME", str(tmp_path))
    found, home = find_data_directory(manifest, None).path, tmp_path / ".sfnode"
    assert found.parent == home == found.resolve().parent
    assert found.name.isascii() and found.name.isprintable() and not found.name.startswith((".", "-", "~"))
    assert found.name.endswith(manifest.run_id.hex()[:12])
    found.mkdir(parents=True)  # the system takes it


@pytest.mark.parametrize("name", ["sst2_opt-1.3b", "test"])
def test_find_data_directory__usual_name__is_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = replace(small_manifest(), name=name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_data_directory(manifest, None).path == tmp_path / ".sfnode" / f"{name}-{manifest.run_id.hex()[:12]}"


def test_find_data_directory__folder_elsewhere_that_a_name_leads_to__is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = replace(small_manifest(), name="../elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".sfnode").mkdir()
    (tmp_path / f"elsewhere-{manifest.run_id.hex()[:12]}").mkdir()
    assert find_data_directory(manifest, None).path.parent == tmp_path / ".sfnode"
