"""Ctrl-C goes to a terminal's foreground group: processes that import torch for seconds are in none of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfnode.children.async_child import printed_lines, running
from tests.children.made_up_programs import made_up


@pytest.mark.process
async def test_child__any_program__is_out_of_reach_of_ctrl_c(tmp_path: Path) -> None:
    async with running(made_up(tmp_path, "import os; print(os.getsid(0), flush=True)"), is_heard=True) as process:
        sessions = [int(line) async for line in printed_lines(process)]
    assert sessions == [process.pid] and os.getsid(0) not in sessions
