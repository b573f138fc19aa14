"""Programs that tests write on the spot, to be run as children of sfnode are."""

from __future__ import annotations

from pathlib import Path

from sfnode.children.child_program import Program


def made_up(folder: Path, text: str, leave_s: float = 0.0) -> Program:
    """A program with this text. It lies in ``folder``, which is on its path."""
    (folder / "made_up_program.py").write_text(text)
    return Program(module="made_up_program", variables={"PYTHONPATH": str(folder)}, leave_s=leave_s)
