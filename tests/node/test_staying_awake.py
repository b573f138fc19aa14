"""``--keep-awake``: the system's tool runs exactly while the node works."""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from sfnode.children import sleep_inhibitor
from sfnode.reporter import Reporter


def _tool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A stand-in for the system's tool, which notes when it begins and ends."""
    tool, notes = folder / "inhibit", folder / "notes"
    tool.write_text(f"#!/bin/sh\necho begins >>{notes}\n{script}\necho ends >>{notes}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sleep_inhibitor, "_TOOLS", {sys.platform: (str(tool), "cat")})
    monkeypatch.setattr(sleep_inhibitor, "_LOOK_S", 0.01)
    return notes


async def test_stay_awake__works_pauses_and_works_again__the_tool_runs_only_while_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = _tool(tmp_path, monkeypatch, "cat")
    said, is_working = io.StringIO(), True

    async def seen(lines: list[str]) -> None:
        with trio.fail_after(20):
            while not notes.exists() or notes.read_text().split() != lines:
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        report = partial(Reporter(is_json=True, stream=said).event, "not_awake")
        nursery.start_soon(sleep_inhibitor.stay_awake, lambda: is_working, report)
        await seen(["begins"])
        is_working = False
        await seen(["begins", "ends"])
        is_working = True
        await seen(["begins", "ends", "begins"])
        nursery.cancel_scope.cancel()
    await seen(["begins", "ends", "begins", "ends"])
    assert said.getvalue() == ""


async def test_stay_awake__tool_hangs__the_node_stops_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = _tool(tmp_path, monkeypatch, "exec sleep 60")
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep_inhibitor.stay_awake, lambda: True, str)
        while not notes.exists():
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert trio.current_time() - started_s < 30


@pytest.mark.parametrize("has_tool", [True, False], ids=["refused", "none"])
async def test_stay_awake__system_has_no_way_or_refuses__is_said_once(
    has_tool: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tool(tmp_path, monkeypatch, "exit 1")
    if not has_tool:
        monkeypatch.setattr(sleep_inhibitor, "_TOOLS", {sys.platform: (str(tmp_path / "none"),)})
    said = io.StringIO()
    with trio.fail_after(20):
        await sleep_inhibitor.stay_awake(lambda: True, partial(Reporter(stream=said).event, "not_awake"))
    assert said.getvalue().count("--keep-awake") == 1
    assert ("has ended by itself" if has_tool else "neither systemd-inhibit nor caffeinate") in said.getvalue()
