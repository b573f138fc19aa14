"""A training worker takes little of the cores where the system lets it, and works where it does not."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from sfnode.children.child_program import yield_to_others


def test_yield_to_others__container_that_forbids_it__works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_niceness: int) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "nice", refuse)
    yield_to_others(10)
