"""Ctrl-C goes to a terminal's foreground group: processes that import torch for seconds are in none of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import OperatorError
from sfnode.node.model_process import resolve_apart
from sfnode.worker.supervisor import _start

sessions: list[int] = []


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes the session of each process that is started."""
    sessions.clear()
    opened = trio.lowlevel.open_process

    async def open_and_note(*arguments: Any, **options: Any) -> trio.Process:
        process = await opened(*arguments, **options)
        sessions.append(os.getsid(process.pid))
        return process

    monkeypatch.setattr(trio.lowlevel, "open_process", open_and_note)


@pytest.mark.process
@pytest.mark.usefixtures("_watched")
async def test_worker__while_it_starts__is_out_of_reach_of_ctrl_c(tmp_path: Path) -> None:
    process = await _start(tmp_path / "socket", 1)
    process.kill()
    await process.wait()
    assert process.stdin is not None
    await process.stdin.aclose()
    assert sessions == [process.pid] and os.getsid(0) not in sessions


@pytest.mark.process
@pytest.mark.usefixtures("_watched")
async def test_model_process__while_it_looks__is_out_of_reach_of_ctrl_c(tmp_path: Path) -> None:
    with pytest.raises(OperatorError):
        await resolve_apart(str(tmp_path / "nowhere"), "", lambda *_: None)
    assert len(sessions) == 1 and os.getsid(0) not in sessions
