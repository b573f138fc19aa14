"""The screens of `sfnode top` fit into 80 columns and 24 lines, and say what matters in each state of a node."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sfnode.status import News, Status
from sfnode.storage.data_directory import DataDirectory
from sfnode.top.screen import NodeView, draw
from tests.support.statuses import DETAIL, STATUS, changed, peer_state

START = changed(
    STATUS, step=0, own_updates=0, updates=0, authors=0, loss=None, peers=0, expects_peers=False,
    detail=changed(DETAIL, peers=(), losses=(), evaluations=(), best=None, own_updates=0, left_s=None,
                   steps_per_s=None, lag_steps=0, run_step=0, news=()),
)  # fmt: skip
CATCHING_UP = changed(STATUS, catching_up=1_920, detail=changed(DETAIL, left_s=75.0))
LOST = changed(
    STATUS, peers=2,
    detail=changed(DETAIL, peers=(peer_state(0), peer_state(1, is_equal=False)),
                   news=(News(time=1.7e9, text="peer 12D3*bn3nt8 left: it did not answer for 120 s", is_bad=True),)),
)  # fmt: skip
FINISHED = changed(STATUS, step=500, is_finished=True, is_over=True, equal_peers=3)
FOLLOWING = changed(
    STATUS, own_updates=0, is_admitted=False, admission="invite",
    detail=changed(DETAIL, own_updates=0, run_step=122, steps_per_s=12.5),
)  # fmt: skip
STATES = {
    "following": FOLLOWING,
    "start": START,
    "catching up": CATCHING_UP,
    "training": STATUS,
    "peer lost": LOST,
    "finished": FINISHED,
}
BAD_NEWS = News(time=1.7e9, text="x\x1b[2J" * 99, is_bad=True)
HOSTILE = changed(STATUS, run="a\x1b[2Jb" * 40, detail=changed(DETAIL, news=(BAD_NEWS,)))


def lines(views: Sequence[NodeView], *, is_ascii: bool = False) -> list[str]:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(draw(views, is_ascii=is_ascii))
    return console.export_text().splitlines()


def view(status: Status | None, trouble: str = "") -> NodeView:
    return NodeView(data_dir=DataDirectory(Path("/tmp/node")), status=status, trouble=trouble)


@pytest.mark.parametrize("status", [*STATES.values(), HOSTILE])
def test_screen__each_state__fits(status: Status) -> None:
    crowd = replace(status, detail=replace(status.detail or DETAIL, peers=tuple(map(peer_state, [0, 1, 2] * 9))))
    for each in (status, crowd):
        found = lines([view(each)])
        assert len(found) <= 24 and max(map(len, found)) <= 80
        assert not any("\x1b" in line for line in found)


@pytest.mark.parametrize("state", STATES)
def test_screen__each_state__cuts_no_word(state: str) -> None:
    """The film in the README had `held-o…`, `mem…` and `adm…`: a long line of progress took the labels' room."""
    found = lines([view(STATES[state])])
    assert not [line for line in found if "…" in line]
    assert {"held-out", "admitted", "memory"} <= {line.split()[0] for line in found if line.strip()}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("start", "alone: no other node is known"),
        ("catching up", "25 % catching up, caught up in 1 min 15 s"),
        ("training", "step 120/500, 1.5 steps/s, 4 min 13 s left"),
        ("peer lost", "left: it did not answer for 120 s"),
        ("finished", "finished, equal with 3 peers"),
    ],
)
def test_screen__each_state__is_named(state: str, said: str) -> None:
    assert any(said in line for line in lines([view(STATES[state])]))


def test_screen__node_that_hangs__keeps_what_was_seen_and_says_so() -> None:
    found = lines([view(STATUS, "the node on /tmp/node (pid 1) has not reported for 20 s: it hangs")])
    assert any("it hangs" in line for line in found) and any("step 120/500" in line for line in found)


def test_screen__several_nodes__is_a_row_for_each_and_their_warnings() -> None:
    excluded = changed(STATUS, excluded_from=9)
    found = lines([view(STATUS), view(excluded), view(None, "no node runs on /tmp/node")])
    assert sum("step 120/500" in line for line in found) == 1
    assert any("excluded by the owner from step 9 on" in line for line in found)
    assert any("not seen" in line for line in found)
    assert any("node following step 122/500 " in line for line in found)


def test_screen__terminal_without_unicode__gets_ascii() -> None:
    assert "▁" in "".join(lines([view(STATUS)]))
    assert "▁" not in "".join(lines([view(STATUS)], is_ascii=True))


def test_screen__node_that_finished_and_left__raises_no_alarm() -> None:
    done = replace(view(FINISHED, "the node has finished its run and stopped"), is_done=True)
    assert lines([done])[1] == "the node has finished its run and stopped"
    assert lines([replace(done, is_done=False)])[1].startswith("! ")
    assert any(line.startswith("node finished ") for line in lines([view(STATUS), done]))


def test_screen__more_nodes_than_lines__those_with_warnings_are_first() -> None:
    trouble = "no node runs here; " + "it has stopped without a word " * 3
    views = [replace(view(STATUS), data_dir=DataDirectory(Path(f"n{number}"))) for number in range(40)]
    views[30:] = [replace(each, trouble=trouble) for each in views[30:]]
    found = lines(views)
    assert len(found) <= 24 and found[-1].startswith("q quits")
    assert found[1].startswith("n30  ") and "gone at step 120" in found[1]
    assert sum(line.startswith("! n3") for line in found) == 6
    assert any(line.startswith("and 33 more") for line in found)
    assert any(line.startswith("further warnings do not fit") for line in found)


@pytest.mark.parametrize("height", [3, 6, 7])
def test_screen__several_nodes_on_a_screen_of_few_lines__shows_the_one_that_is_unwell(height: int) -> None:
    views = [view(STATUS), view(STATUS), replace(view(STATUS, "it hangs"), data_dir=DataDirectory(Path("unwell")))]
    console = Console(width=80, file=(text := io.StringIO()))
    console.print(draw(views, lines=height))
    assert text.getvalue().splitlines()[1].startswith("unwell ")
