"""A model is found in a process of its own: it says how far it is, and ends with its question."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.node import model_finder
from sfnode.node.model_finder import resolve_apart
from tests.support.patience import within
from tests.support.running_nodes import children_of, is_alive

ASKED = ("model.safetensors", 5, 10)


def ignore(_text: str, _done: int, _total: int) -> None:
    """Nobody listens."""


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Run this program in place of the one that looks for models."""
    (tmp_path / "made_up_resolving.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(model_finder, "_RESOLVING", "made_up_resolving")


async def test_process__model_is_there__its_folder() -> None:
    resolve = partial(resolve_apart, "embedded:tiny-opt", "", ignore)
    assert await within(30.0, resolve) == demo.model_folder()


async def test_process__no_such_model__the_error_as_it_is() -> None:
    with pytest.raises(OperatorError, match="no such folder"):
        await within(30.0, partial(resolve_apart, "./nowhere", "", ignore))


async def test_process__takes_its_time__says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [ASKED, ("model.safetensors", 10, 10), ("/somewhere",)]
    program(tmp_path, monkeypatch, f"print({chr(10).join(json.dumps(row) for row in rows)!r})")
    told: list[tuple[str, int, int]] = []
    resolve = partial(resolve_apart, "any", "", lambda *row: told.append(row))
    assert await within(30.0, resolve) == Path("/somewhere")
    assert told == [ASKED, ("model.safetensors", 10, 10)]


async def test_process__ends_without_a_word__is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "raise SystemExit(3)")
    with pytest.raises(OperatorError, match="has ended without a word"):
        await within(30.0, partial(resolve_apart, "any", "", ignore))


async def test_process__node_stops_meanwhile__ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, f"import time\nprint({json.dumps(ASKED)!r}, flush=True)\ntime.sleep(600)")
    started = trio.Event()
    before = set(children_of(os.getpid()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resolve_apart, "any", "", lambda *_: started.set())
        await within(30.0, started.wait)
        (child,) = set(children_of(os.getpid())) - before
        nursery.cancel_scope.cancel()
    assert not is_alive(child)
