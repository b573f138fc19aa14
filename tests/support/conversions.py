"""Conversion in the test's own process: the same code, without the limits and the seconds of a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.children.program import Program
from sfnode.model_files import conversion
from sfnode.model_files.conversion import WeightForm
from sfnode.training.conversion import from_gguf, from_pickles
from sfnode.training.conversion.process import convert


def convert_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on; returns the list of what is converted, which grows."""
    converted: list[str] = []

    def run(program: Program, _folder: Path, _tell: Callable[[int], None], _stall_s: float) -> tuple[int, str]:
        form, source, out = program.arguments
        converted.append(form)
        try:
            convert(WeightForm(form), Path(source), Path(out))
        except OperatorError as error:
            return 3, str(error)
        return 0, ""

    monkeypatch.setattr(conversion, "run_watched", run)
    without_limits(monkeypatch)
    return converted


def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process keeps its memory."""
    for module in (from_gguf, from_pickles):
        monkeypatch.setattr(module, "allow", lambda **_limits: None)
