"""What the tasks of a node in this process are doing, for a finding."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.faults.points import NODE


def waits_of(number: int) -> str:
    """Where the tasks of a node wait, each by its innermost frames in our code."""
    found, tasks = [], [trio.lowlevel.current_root_task()]
    while tasks:
        task = tasks.pop()
        assert task is not None
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        if task.context.get(NODE) == number:
            frames = [(frame.f_code, line) for frame, line in task.iter_await_frames()]
            ours = [f"{Path(code.co_filename).stem}:{line}" for code, line in frames if "/sfnode/" in code.co_filename]
            found.append(" > ".join(ours[-3:]) or task.name)
    return " | ".join(sorted(set(found)))
