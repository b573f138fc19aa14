"""What a node process has said, read from its log while it is being written."""

from __future__ import annotations

from pathlib import Path

from tests.support.daemons import PlacedProcess


def node_with(log: Path, text: str) -> PlacedProcess:
    log.write_text(text)
    return PlacedProcess(log.parent / "node", [], logs=[log])


def test_new_events__half_written_line__comes_with_the_next_call_and_once(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    node = node_with(log, '{"event": "started"}\n{"event": "prog')
    assert node.new_events() == [{"event": "started"}]
    assert node.new_events() == []
    with log.open("a") as output:
        output.write('ress"}\nWarning: not an event\n{"event": "finished"}\n')
    assert node.new_events() == [{"event": "progress"}, {"event": "finished"}]
    assert [event["event"] for event in node.events()] == ["started", "progress", "finished"]


def test_last_words__node_that_ended__are_its_last_line_that_is_not_an_event(tmp_path: Path) -> None:
    text = '{"event": "started"}\nError: the disk is full\n\n{"event": "progress"}\n'
    assert node_with(tmp_path / "a.log", text).last_words() == "Error: the disk is full"
    assert node_with(tmp_path / "b.log", "").last_words() == "it said nothing"
    as_json = '{"event": "started"}\n{"error": {"code": "operator", "message": "the disk is full"}}\n'
    assert node_with(tmp_path / "c.log", as_json).last_words() == "Error: the disk is full"
    assert [event["event"] for event in node_with(tmp_path / "c.log", as_json).events()] == ["started"]


def test_last_words__lines_that_a_full_disk_cut__are_passed_over(tmp_path: Path) -> None:
    node = node_with(tmp_path / "node.log", 'Error: the disk is full\n{"event": "pro{"event": "x"}\n{"error": {"mes')
    assert node.last_words() == "Error: the disk is full"
    assert node.events() == []


def test_words__arguments__follow_those_of_every_node(tmp_path: Path) -> None:
    node = PlacedProcess(tmp_path, ["--relay"])
    assert node.words == ["join", "--data-dir", str(tmp_path), "--json", "--relay"]
