"""``sfnode testnet``: real node processes, a late one, one verdict."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from protocol.errors import OperatorError, SfnodeError
from protocol.run.manifest import sign_manifest
from sfnode.cli.testnet import _check, _print_learnt, _shards, _View
from sfnode.demo import data_file
from sfnode.quality_figures import Quality, SampleAnswer
from sfnode.rows import TaskTemplate, row_files
from sfnode.status import ModelProgress
from sfnode.storage import EvaluatedStep, decode_run_file
from sfnode.storage.data_directory import DataDirectory
from sfnode.testnet import LocalNetwork, LocalNetworkConfig, LocalNetworkResult, LocalNode, local_network
from sfnode.testnet.measured_gain import Learnt, measure_members
from tests.support.cli_calls import call, shared_worker
from tests.support.daemons import demo_run, run_sfnode, training
from tests.support.manifests import OWNER, small_manifest
from tests.support.small_disk import fill, small_disk
from tests.support.task_specs import CLASSIFICATION, TEXT, task_spec, write_rows


def known(accuracy: float) -> EvaluatedStep:
    return EvaluatedStep(step=8, accuracy=accuracy, loss=1.0, rows=8)


def result(
    *,
    is_in_time: bool = True,
    is_agreed: bool = True,
    is_stopped_cleanly: bool = True,
    before: float = 0.5,
    after: float = 0.75,
) -> LocalNetworkResult:
    return LocalNetworkResult(
        is_in_time=is_in_time,
        is_agreed=is_agreed,
        is_stopped_cleanly=is_stopped_cleanly,
        nodes=[],
        state_digests=["aa", "bb"],
        replayed_digest="aa",
        learnt=Learnt(before=known(before), after=known(after)),
        seconds=1.0,
        page=Path("run.html"),
        payload_bytes=124,
    )


def evaluated_event(digest: str, **fields: object) -> dict[str, object]:
    event = {"event": "evaluated", "step": 0, "accuracy": 0.5, "loss": 0.7, "rows": 4, "predictions": [0, 0]}
    return event | {"state_digest": digest} | fields


def test_view__evaluations__are_shown_while_they_last(capsys: pytest.CaptureFixture[str]) -> None:
    """One of 1,000 rows of a real model took a quarter of an hour without a sign of life."""
    lines = ({"event": "evaluating", "done": 300, "in_all": 1_000}, evaluated_event("aa"))
    events, view = list(lines), _View(Quality(is_reward=False))
    process: Any = SimpleNamespace(new_events=lambda: [events.pop(0)])
    node = LocalNode(name="node0", process=process)
    for _ in lines:
        node.listen()
        view._printed = -math.inf
        view.show([node])
    view._printed = -math.inf
    view.show_end("evaluating before and after: 64 of 2,000 rows")
    view.show_end("evaluating before and after: 128 of 2,000 rows")  # too soon for another line
    shown = [line for line in capsys.readouterr().err.splitlines() if "rows" in line]
    assert shown == ["node0 evaluates: 300 of 1,000 rows", "evaluating before and after: 64 of 2,000 rows"]


def test_view__steps_that_taught_nothing__are_said_to_be_skipped_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose rule no answer fulfilled said "starting" for half an hour, and so did one whose worker was killed."""
    process: Any = SimpleNamespace(
        new_events=lambda: [{"event": "step_skipped", "step": 0, "reason": "all were equal"}]
    )
    status: Any = SimpleNamespace(
        node=SimpleNamespace(step=1, steps=9), training=SimpleNamespace(loss=None), life=SimpleNamespace(model=None)
    )
    node = LocalNode(name="node0", process=process, status=status)
    node.listen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfnode.cli.testnet._table", lambda *_: None)
        _View(Quality(is_reward=True)).show([node])
    assert capsys.readouterr().err == "steps: node0 1; nothing measured yet\nnode0: all were equal\n"


def test_view__worker_that_loads_the_model__is_said_to_do_so(capsys: pytest.CaptureFixture[str]) -> None:
    """On a busy machine it said for nine minutes that nothing is measured; `sfnode status` knew why."""
    model = ModelProgress(stage="loading", text="loading the model, 388 s")
    status: Any = SimpleNamespace(
        node=SimpleNamespace(step=0, steps=9), training=SimpleNamespace(loss=None), life=SimpleNamespace(model=model)
    )
    process: Any = SimpleNamespace(new_events=list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfnode.cli.testnet._table", lambda *_: None)
        _View(Quality(is_reward=False)).show([LocalNode(name="node0", process=process, status=status)])
    assert capsys.readouterr().err == "steps: node0 0; loading the model, 388 s\n"


def test_view__many_nodes__are_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    """64 names and steps were 700 characters, every two seconds."""
    process: Any = SimpleNamespace(new_events=list)
    nodes = [LocalNode(name=f"node{number}", process=process) for number in range(64)]
    for step, node in enumerate(nodes[:62]):
        status: Any = SimpleNamespace(
            node=SimpleNamespace(step=step, steps=99),
            training=SimpleNamespace(loss=0.5),
            life=SimpleNamespace(model=None),
        )
        node.status = status
    view = _View(Quality(is_reward=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfnode.cli.testnet._table", lambda *_: None)
        view.show(nodes)
    assert capsys.readouterr().err == "steps: 62 of 64 nodes have started, at 0 to 61; loss 0.500\n"


def test_view__nothing_new__is_not_said_every_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While 64 nodes started, a file got the same line 60 times."""
    now = 100.0
    monkeypatch.setattr("sfnode.cli.testnet.time.monotonic", lambda: now)
    view, said = _View(Quality(is_reward=False)), []
    for now, rows in ((100.0, 1), (103.0, 1), (106.0, 1), (109.0, 2), (112.0, 2), (140.0, 2)):  # noqa: B007
        view.show_end(f"{rows} of 9 rows")
        said.append(capsys.readouterr().err.strip())
    assert said == ["1 of 9 rows", "", "", "2 of 9 rows", "", "2 of 9 rows"]


def test_view__next_stage_of_the_end__is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said once, and came within two seconds of the line before: nothing named the replay and the loading."""
    view, said = (
        _View(Quality(is_reward=False)),
        ["stopping: 1 of 3 nodes still run", "replaying the last node's ledger"],
    )
    for text in (said[0], "stopping: 0 of 3 nodes still run", said[1]):
        view.show_end(text)
    assert capsys.readouterr().err.splitlines() == said


@pytest.mark.parametrize("is_evaluated", [True, False])
async def test_check__evaluation__is_announced_where_there_is_one(is_evaluated: bool, tmp_path: Path) -> None:
    """Without --eval-data it said that the model was loaded to be evaluated, which nobody did."""
    node: Any = SimpleNamespace(process=SimpleNamespace(directory=tmp_path))
    given: Any = SimpleNamespace(
        signed=sign_manifest(small_manifest(), OWNER),
        training=SimpleNamespace(eval_data=tmp_path if is_evaluated else None),
    )
    said = list[str]()
    network = LocalNetwork(given, lambda nodes: None, on_end=said.append)
    network.nodes = [node]
    with pytest.raises(OperatorError, match="ledger"):
        await network._check(is_in_time=True, is_stopped=True, seconds=1.0)
    assert said[0].startswith("replaying the last node's ledger") and ("the model" in said[0]) == is_evaluated


def test_view__all_steps_are_made__says_what_the_nodes_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    """64 nodes were silent for most of a minute between their last step and the last evaluation."""
    nodes = [ended_node(number, is_over=number < 3) for number in range(64)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfnode.cli.testnet._table", lambda *_: None)
        _View(Quality(is_reward=False)).show(nodes)
    assert capsys.readouterr().err.splitlines()[1:] == ["all steps are made; 3 of 64 nodes know that the run is over"]


def ended_node(number: int, *, is_over: bool) -> LocalNode:
    """A node that has made its last step."""
    status: Any = SimpleNamespace(
        node=SimpleNamespace(step=20, steps=20),
        training=SimpleNamespace(loss=0.5),
        life=SimpleNamespace(model=None),
        end=SimpleNamespace(is_over=is_over),
    )
    alive = iter([True, True, True])
    process: Any = SimpleNamespace(
        new_events=list,
        process=SimpleNamespace(pid=os.getpid()),
        terminate=lambda: None,
        exit_code=0,
        look=lambda: next(alive, False),
    )
    return LocalNode(name=f"node{number}", process=process, status=status)


async def test_stop_all__nodes_that_end_slowly__are_counted_while_they_do(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ending(SimpleNamespace):
        @property
        def is_alive(self) -> bool:
            return bool(self.look())

    nodes, said = [ended_node(number, is_over=True) for number in range(2)], list[str]()
    for number, node in enumerate(nodes):
        pid = SimpleNamespace(pid=os.getpid() + number)
        node.process = Ending(**vars(node.process) | {"process": pid})  # type: ignore[assignment]
    monkeypatch.setattr(local_network, "Stillness", lambda pid: SimpleNamespace(look=lambda: 0.0))
    assert await local_network.stop_all(nodes, 60.0, said.append)
    assert said == ["stopping: 2 of 2 nodes still run"] * 3


async def test_testnet__time_is_up_while_a_node_starts__says_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    """It said of a node at work that it "did nothing for 0 s"."""
    signed = sign_manifest(small_manifest(), OWNER)
    config = LocalNetworkConfig(
        folder=tmp_path, signed=signed, nodes=1, late_nodes=0, training=training(None), timeout_s=1.0
    )
    process: Any = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()), new_events=list, logs=["node0.log"])
    node = LocalNode(name="node0", process=process)
    with pytest.raises(OperatorError, match=r"node0 did not start: it still works after 1 s \(--timeout\); see node0"):
        await LocalNetwork(config, lambda nodes: None)._wait_for_address(node)


def test_verdict__equal_digests_and_enough_points__is_none() -> None:
    _check(result(), Path("folder"), 20.0)
    _check(result(after=0.4), Path("folder"), None)


def test_result__rewards__are_printed_with_answers_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (
        replace(
            known(mean), loss=1 - mean, reward=mean, answers=(SampleAnswer(prompt="2 + 2 =", text=text, reward=mean),)
        )
        for mean, text in ((0.0, "five\x1b"), (1.0, "4"))
    )
    _print_learnt(Learnt(before=before, after=after), Quality(is_reward=True))
    assert capsys.readouterr().out.splitlines() == [
        "reward     the model alone 0.00, the run now 1.00 (mean, held-out)",
        "right      the model alone 0.0 %, the run now 100.0 % (+100.0 points, held-out)",
        "answer     2 + 2 =  'five\\x1b' -> '4' (reward 0.00 -> 1.00)",
    ]


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (result(is_in_time=False, is_agreed=False), "not over after 1 s: give it a longer --timeout.* in folder"),
        (result(is_agreed=False), "the nodes do not agree: .*'aa', 'bb'"),
        (result(is_stopped_cleanly=False), "did not stop cleanly"),
        (result(after=0.69), r"changed by \+19.0 points, at least \+20.0"),
        (result(after=0.3), r"changed by -20.0 points"),
    ],
)
def test_verdict__anything_short_of_that__fails_with_the_figure(outcome: LocalNetworkResult, complaint: str) -> None:
    with pytest.raises(SfnodeError, match=complaint):
        _check(outcome, Path("folder"), 20.0)


def test_members__a_part_with_true_and_one_with_false_labels__each_learns_its_own(tmp_path: Path) -> None:
    """What a node would know without the others: its own rows alone decide."""
    rows = [json.loads(line) for line in data_file("reviews", split="train").read_text("utf-8").splitlines()[:200]]
    parts = {"true": rows, "false": [row | {"label": 1 - row["label"]} for row in rows]}
    for name, part in parts.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part), "utf-8")
    config = replace(training(shared_worker().path), eval_data=data_file("reviews", split="eval"))
    told: list[tuple[int, int]] = []
    shards = [tmp_path / name for name in parts]
    found = trio.run(measure_members, demo_run(steps=20), config, shards, lambda *each: told.append(each))
    true, false = found.accuracies
    assert true > 0.57 > 0.43 > false, found
    assert found.best == true and found.median == pytest.approx((true + false) / 2) and told[-1] == (2, 2)


def test_testnet__members_without_parts_of_their_own__says_what_is_missing() -> None:
    outcome = call("testnet", "--members")
    assert outcome.code == 1 and "--members compares parts of --private-data on --eval-data" in outcome.stderr
    outcome = call("testnet", "--template", "{text}:", "--labels", " no, yes", "--dir", "new")
    assert outcome.code == 1 and "--data is missing: give" in outcome.stderr and "--private" not in outcome.stderr


@pytest.mark.parametrize("said", ["no data file", "held-out.jsonl:2: field 'wanted' is missing"])
def test_testnet__held_out_rows_that_no_node_can_read__are_refused_before_the_basis(said: str, tmp_path: Path) -> None:
    """A fault once: that a file was missing was said after the minutes that a basis takes, and a field by a node."""
    (held_out := tmp_path / "held-out.jsonl").write_text('{"prompt": "a", "wanted": "b"}\n{"prompt": "a"}\n', "utf-8")
    data = write_rows(tmp_path / "prompts.jsonl", [{"prompt": f"a film {row}", "wanted": "great"} for row in range(32)])
    held_out = tmp_path / "none.jsonl" if said == "no data file" else held_out
    given = ("--reward", "contains:{wanted}", "--data", data, "--private-data", "--eval-data", held_out)
    outcome = call("testnet", *given, "--nodes", 1, "--steps", 1, "--dir", tmp_path / "net")
    assert outcome.code == 1 and said in outcome.stderr and "draws" not in outcome.stderr
    assert not (tmp_path / "net").exists()


def test_testnet__parts_of_the_demos_data__are_measured_on_its_held_out_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: no accuracy was measured, and --members was refused, though the help promised these rows."""
    made: list[LocalNetworkConfig] = []

    def take(config: LocalNetworkConfig, *_shown: object) -> None:
        made.append(config)
        raise OperatorError("enough")

    monkeypatch.setattr("sfnode.cli.testnet.LocalNetwork", take)
    outcome = call("testnet", "--members", "--private-data", "--nodes", "2", "--dir", tmp_path / "net")
    assert "enough" in outcome.stderr, outcome.stderr
    assert made[0].training.eval_data == data_file(split="eval") and len(made[0].shards) == 2 and made[0].is_members


def test_shards__label_words_that_are_numbers__are_the_same_words_to_the_nodes(tmp_path: Path) -> None:
    (data := tmp_path / "data.jsonl").write_text('{"sentence": "a", "label": 5}\n{"sentence": "b", "label": 1}\n')
    task = task_spec(CLASSIFICATION, label_words=[" 1", " 5"])
    (first, _), template = _shards(data, task, 2, tmp_path), TaskTemplate(task)
    assert [template.texts(row, where).label for where, row in row_files.rows_of(first, template)] == [1]


def test_shards__characters_that_end_a_line_elsewhere__do_not_cut_an_example(tmp_path: Path) -> None:
    rows = ['{"sentence": "one\u2028two"}', "", '{"sentence": "three"}', '{"sentence": "four"}']
    (tmp_path / "data.jsonl").write_text("\n".join(rows), encoding="utf-8")
    task = task_spec(TEXT, completion="{sentence}")
    shards = [path.read_text("utf-8") for path in _shards(tmp_path / "data.jsonl", task, 2, tmp_path)]
    assert shards == [f"{rows[0]}\n{rows[3]}\n", f"{rows[2]}\n"]
    with pytest.raises(OperatorError, match="3 examples for 4 nodes"):
        _shards(tmp_path / "data.jsonl", task, 4, tmp_path)


def test_shards__disk_is_full__is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(f'{{"sentence": "{"x" * 9_000}"}}\n' * 2)
    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        fill(disk)
        with pytest.raises(OperatorError, match="the disk is full"):
            _shards(tmp_path / "data.jsonl", task_spec(TEXT, completion="{sentence}"), 2, disk)


@pytest.mark.process(is_long=True)
def test_testnet__two_nodes_and_a_late_one__agree_with_the_offline_replay(tmp_path: Path) -> None:
    arguments = ["--nodes", "2", "--late", "1", "--steps", "24", "--dir", str(tmp_path), "--json"]
    finished = run_sfnode("testnet", *arguments, limit_s=110)
    assert finished.returncode == 0, finished.stderr[-2_000:]
    said = json.loads(finished.stdout)
    assert said["agree"] and set(said["state_digests"]) == {said["replayed_digest"]} and len(said["state_digests"]) == 3
    assert said["updates"] == sum(node["own_updates"] for node in said["nodes"])
    assert said["nodes"][2]["own_updates"] > 0
    # None measures before all listen: of 64 nodes on two cores, most had one update in a run of six steps.
    logs = [(tmp_path / f"node{number}.log").read_text("utf-8").splitlines() for number in range(2)]
    events = [[json.loads(line) for line in log if line.startswith("{")] for log in logs]
    told_at = [{event["event"]: event["time"] for event in each if "event" in event} for each in events]
    assert max(each["started"] for each in told_at) < min(each["resumed"] for each in told_at)
    # Each of 8 directions has 2 of the 16 rows, on both sides; a late node measures fewer, as its messages tell but for
    # a last scalar that is rounded to zero. Zeros alone count as all directions, and may be one.
    manifest = decode_run_file(tmp_path / "testnet.run").manifest
    with DataDirectory(tmp_path / "node0").replayed(manifest) as replica:
        sent = [each.scalars for each in replica.ledger.slots.envelopes()]
    told, silent = sum(map(manifest.method.directions_measured, sent)), sum(not any(each) for each in sent)
    assert (
        said["forward_rows"] % 4 == 0 and told - 7 * silent <= said["forward_rows"] / 4 <= told + said["updates"] // 4
    )
    assert said["payload_bytes"] == 124 * said["updates"] < said["wire_bytes"]
    assert said["learnt"]["after"]["rows"] == 512 and len(said["learnt"]["after"]["answers"]) == 8
    assert {each["reward"] for each in said["learnt"]["after"]["answers"]} <= {0.0, 1.0}
    page = (tmp_path / "run.html").read_text("utf-8")
    assert said["page"] == str(tmp_path / "run.html") and said["replayed_digest"] in page


@pytest.mark.process(is_long=True)
def test_testnet__reward__nodes_learn_from_a_rule_and_agree(tmp_path: Path) -> None:
    files = []
    for option, split, rows in (("--data", "train", 40), ("--eval-data", "eval", 8)):
        path = tmp_path / f"{split}.jsonl"
        path.write_text("\n".join(data_file("reviews", split=split).read_text("utf-8").split("\n")[:rows]), "utf-8")
        files += [option, str(path)]
    rule = ["--template", "{sentence}\n", "--reward", "contains:.", "--answer-tokens", "2", "--batch-rows", "16"]
    given = ["--nodes", "2", "--late", "1", "--steps", "3", "--private-data", *rule, *files]
    finished = run_sfnode("testnet", *given, limit_s=110)
    assert finished.returncode == 0, finished.stderr[-2_000:]
    assert "all equal  yes" in finished.stdout
    assert re.search(r"for [1-9]\d* updates", finished.stdout), finished.stdout
    assert re.search(r"right +the model alone [0-9.]+ %, the run now [0-9.]+ %", finished.stdout), finished.stdout
    assert re.search(r"reward +the model alone [01]\.\d+, the run now [01]\.\d+", finished.stdout), finished.stdout
