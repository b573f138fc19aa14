"""The examples of docs/examples run, on the model that comes with sfnode and on a tiny one of their own."""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from sfnode import demo
from sfnode.api.joining import join
from sfnode.api.runs import open_run, save_run
from sfnode.api.simulation import simulate
from tests import REPOSITORY
from tests.api.test_simulation import MadeUpLearner, run_of

FOLDER = REPOSITORY / "docs" / "examples"


def function(file: str, name: str) -> Callable[..., Any]:
    """A function of an example, whose program is not run."""
    return runpy.run_path(str(FOLDER / file))[name]  # type: ignore[no-any-return]


def test_examples__all_files__have_a_test_here() -> None:
    named = Path(__file__).read_text("utf-8")
    assert [path.name for path in FOLDER.glob("*.py") if f'"{path.name}"' not in named] == []


def test_example_simulate__eight_nodes__learn_and_their_directory_says_how(
    tmp_path: Path, one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    function("simulate.py", "main")(tmp_path / "run", nodes=8, steps=4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("8 nodes, 32 updates, state ")
    right = [float(line.split()[3]) for line in lines[1:5]]
    assert right[0] < 60.0 and right[-1] > 90.0
    assert open_run(tmp_path / "run").state().steps == 4


def test_example_own_model__two_authors_by_hand__hold_one_state_and_learn(
    one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    function("own_model.py", "main")()  # asserts both
    assert "accuracy" in capsys.readouterr().out


def test_example_own_reward__function_in_python__is_learnt(
    one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    function("own_reward.py", "main")()
    before, after = (float(line.split()[2].rstrip(":")) for line in capsys.readouterr().out.splitlines())
    assert after > before + 0.1


async def test_example_follow__node_of_a_simulated_run__gives_all_updates_to_who_joins(tmp_path: Path) -> None:
    run = run_of()
    learner = MadeUpLearner(run.manifest)
    found = simulate(run, lambda _: learner, 5)
    save_run(run, found.replica, tmp_path / "giver")
    with trio.fail_after(30):
        async with join(tmp_path / "giver", listen=["/ip4/127.0.0.1/tcp/0"], is_relay=True) as giver:
            digest = await function("follow.py", "follow")(giver.string, tmp_path / "taker")
    assert digest == found.state_digest
    assert open_run(tmp_path / "taker").state().coefficients.digest() == digest


async def test_notebook__blocks_of_the_page_as_cells__run_one_after_the_other(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text("utf-8")
    simulated, by_hand, joined = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    text = demo.data_file().read_text("utf-8")
    names: dict[str, Any] = {"rows": [json.loads(line) for line in text.splitlines()]}
    for cell in (re.sub("steps=20|nodes=100", lambda found: found[0][:6] + "4", simulated), by_hand):
        exec(cell, names)
    digest = names["simulation"].state_digest
    assert names["ann"].replica.ledger.updates == 1
    save_run(names["run"], names["simulation"].replica, tmp_path / "giver")
    (tmp_path / "rows.jsonl").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cell = compile(joined, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with trio.fail_after(60):
        async with join(tmp_path / "giver", listen=["/ip4/127.0.0.1/tcp/0"], is_relay=True) as giver:
            names["string"] = giver.string
            running = eval(cell, names)
            await _run_until(running, names, digest)


async def _run_until(cell: Coroutine[Any, Any, None], names: Mapping[str, Any], digest: bytes) -> None:
    """Run a cell that joins until its node holds the state of this digest."""

    def is_there() -> bool:
        replica = names["node"].replica if "node" in names else None
        return replica is not None and replica.state_digest() == digest

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: cell)
        while not is_there():
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
