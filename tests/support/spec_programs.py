"""The programs in SPEC.md, to be run beside the code."""

from __future__ import annotations

import re
from statistics import median, median_low
from types import SimpleNamespace

from tests import REPOSITORY

_SPEC = (REPOSITORY / "protocol" / "SPEC.md").read_text("utf-8")


def spec_program(heading: str, **names: object) -> SimpleNamespace:
    """The functions of the program in the section that begins so; ``names``: what its text says beside the program."""
    section = re.split(r"\n#{2,3} \d", _SPEC.split(f"\n{heading} ", 1)[1])[0]
    programs = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(programs) == 1
    namespace: dict[str, object] = {"median": median, "median_low": median_low, "clamp": _clamp, **names}
    exec(programs[0], namespace)
    return SimpleNamespace(**namespace)


def _clamp(x: float, low: float, high: float) -> float:
    return max(low, min(high, x))
