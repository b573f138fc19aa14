"""A node in this process: what is refused before it runs, and what becomes of its events. Nodes are in the examples."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from protocol.state import Replica
from sfnode.api.joining import NodeEvent, _EventReporter, join
from sfnode.node.daemon import Daemon
from sfnode.rows import row_files
from sfnode.storage import DataDirectory, Store
from tests.support.manifests import OWNER, small_manifest


@pytest.mark.parametrize(
    ("source", "text"),
    [("nonsense", "nonsense"), ("sfnode:" + "v1." * 200, "string to join"), (Path("no.run"), "no.run")],
)
async def test_join__source_that_is_none__is_refused_before_the_block(source: str | Path, text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        async with join(source, is_relay=True):
            raise AssertionError("the block began")


async def test_join__key_of_a_node_that_runs__is_refused(tmp_path: Path) -> None:
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    async with join(tmp_path / "my.run", folder=tmp_path / "node", is_relay=True) as node:
        assert node.string == ""  # it does not listen
        async for event in node.events():
            if event.name == "progress":
                assert event.fields["steps"] == 40
                break
        with pytest.raises(OperatorError, match="another node of this machine runs with the key"):
            async with join(tmp_path / "node", is_relay=True):
                raise AssertionError("the block began")


async def test_join__sfnode_stop__ends_the_node_in_good_order_and_its_events(tmp_path: Path) -> None:
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    data_dir = DataDirectory(tmp_path / "node")
    async with join(tmp_path / "my.run", folder=tmp_path / "node", is_relay=True) as node:
        data_dir.control.ask_to_stop()
        with trio.fail_after(10):
            names = [event.name async for event in node.events()]
        assert "started" in names and names[-1] == "stopping" and not data_dir.is_locked()
        assert node.replica is None and node.statistics() is None  # whose records lie in a file that is closed
        with data_dir.identity.in_use():  # which the ended node held until its block ended, too: nobody could go on
            pass
    assert "it ended in good order" in data_dir.end.describe()


async def test_join__sfnode_stop_while_it_reads_its_disk__is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    reads = Daemon._load_replica

    async def slowly(daemon: Daemon, store: Store) -> Replica:
        daemon.config.data_dir.control.ask_to_stop()
        await trio.sleep(2)
        return await reads(daemon, store)

    monkeypatch.setattr(Daemon, "_load_replica", slowly)
    with pytest.raises(ExceptionGroup) as caught:
        async with join(tmp_path / "my.run", folder=tmp_path / "node", is_relay=True):
            raise AssertionError("the block began")
    assert caught.group_contains(OperatorError, match="stopped before it had started")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_join__block_ends__the_node_has_ended_in_good_order_and_forgotten_earlier_requests(
    is_cancelled: bool, tmp_path: Path
) -> None:
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    data_dir = DataDirectory(tmp_path / "node")
    async with join(tmp_path / "my.run", folder=tmp_path / "node", is_relay=True):
        assert "killed" in data_dir.end.describe()
    data_dir.end.write("an earlier end")
    data_dir.control.ask_to_stop()
    with trio.CancelScope() as scope:
        async with join(tmp_path / "node", is_relay=True) as node:
            assert not data_dir.control.is_asked_to_stop() and node.statistics()
            if is_cancelled:
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert "it ended in good order" in data_dir.end.describe()


async def test_join__one_address_to_listen_on__need_not_be_in_a_list(tmp_path: Path) -> None:
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    listen = "/ip4/127.0.0.1/tcp/0"
    async with join(tmp_path / "my.run", folder=tmp_path / "node", listen=listen, is_relay=True) as node:
        assert node.string != ""


async def test_join__reading_own_rows_takes_long__other_tasks_go_on_and_may_cancel_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of gigabytes kept Ctrl-C, the page and the program around the node waiting for minutes."""
    may_end = threading.Event()
    monkeypatch.setattr(row_files, "checked_texts", lambda *_, is_judged: may_end.wait(10))
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    (tmp_path / "rows.jsonl").write_text("{}\n")
    has_begun, started_s = False, trio.current_time()
    with trio.move_on_after(0.5):
        async with join(tmp_path / "my.run", folder=tmp_path / "node", data=str(tmp_path / "rows.jsonl")):
            has_begun = True
    may_end.set()
    assert not has_begun and trio.current_time() - started_s < 5


async def test_events__nobody_reads__the_first_ones_wait_and_debugging_is_left_out() -> None:
    incoming, events = trio.open_memory_channel[NodeEvent](2)
    reporter = _EventReporter(incoming)
    reporter.event_at(logging.DEBUG, "detail", "not told")
    for number in range(5):
        reporter.event("counted", "one", "more", number=number)
    incoming.close()
    reporter.event("late", "after the end")
    assert [event async for event in events] == [
        NodeEvent(name="counted", text="one\nmore", fields={"number": number}) for number in range(2)
    ]
