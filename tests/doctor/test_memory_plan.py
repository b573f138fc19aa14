"""The memory plan of a node whose weights do not all stay on the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.demo import model_folder
from sfnode.doctor import Examination, Question, memory_plan
from sfnode.doctor.findings import Verdict
from sfnode.run.builder import MethodOptions
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.stored_bases import BASIS_FILE
from sfnode.worker_protocol.device_choices import DeviceOptions
from tests.support.demo_run import demo_run
from tests.support.manifests import small_manifest
from tests.support.published_runs import with_start


def test_memory_plan__weights_that_wait__are_planned_on_the_disk_or_beside_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = demo_run(MethodOptions(), 10).manifest
    manifest = replace(made, steps=10 * made.method.epoch_steps)
    whole, split = (memory_plan.plan_memory(manifest, model_folder(), "fp32", limit) for limit in (None, 1))
    assert whole.waiting == 0 < split.waiting and split.weights <= 1 << 20 < whole.weights
    assert split.weights + split.waiting > whole.weights and split.closed < whole.closed
    assert "weights that wait elsewhere 4 MB" in str(split)
    assert memory_plan.judge_memory(whole, split.weights, None).advice.endswith("--device-memory 1 or more")
    assert memory_plan.judge_memory(split, 1 << 40, 64 << 20).verdict is Verdict.OK
    monkeypatch.setattr(memory_plan, "free_disk", lambda _folder: split.waiting - 1)
    finding = memory_plan.judge_memory(split, 1 << 40, None)
    assert finding.verdict is Verdict.FAIL and "on the disk of" in finding.text and "TMPDIR" in finding.advice
    assert memory_plan.judge_memory(split, 1 << 40, 64 << 20).verdict is Verdict.OK  # a card: the disk is not asked


def test_memory_plan__start_that_is_not_here__is_said_as_a_bound_and_no_failure(tmp_path: Path) -> None:
    manifest, file = with_start(demo_run(MethodOptions(), 10).manifest, {0})
    (held := tmp_path / "basis").write_bytes(file)
    most, known = (memory_plan.plan_memory(manifest, model_folder(), "fp32", None, at) for at in (None, held))
    assert "start at most" in str(most) and "start at most" not in str(known) and ", start " in str(known)
    enough = known.node + known.peak
    finding = memory_plan.judge_memory(most, enough, None)
    assert finding.verdict is Verdict.WARNING and "says how much its start takes" in finding.text
    assert memory_plan.judge_memory(most, 1 << 20, None).verdict is Verdict.FAIL  # whatever the start takes
    assert memory_plan.judge_memory(known, enough - 1, None).verdict is Verdict.FAIL
    held.write_bytes(b"damaged")
    assert memory_plan.plan_memory(manifest, model_folder(), "fp32", None, held) == most


def test_doctor__basis_in_the_directory_or_beside_the_run__its_start_is_planned(tmp_path: Path) -> None:
    manifest, file = with_start(demo_run(MethodOptions(), 10).manifest, {0})
    question = Question(
        data_dir=DataDirectory(node := tmp_path / "node"),
        is_new=True,
        run_file=tmp_path / "a.run",
        signed=None,
        bootstrap=(),
        run_id=None,
        listen=(),
        model=None,
        revision=None,
        devices=DeviceOptions(device="cpu", dtype="fp32"),
        is_relay=False,
    )

    def planned() -> str:
        return Examination(question, lambda _: None)._plan(manifest, model_folder()).text

    assert "start at most" in planned()
    (beside := tmp_path / "a.basis").write_bytes(file)
    assert ", start " in planned() and "at most" not in planned()
    node.mkdir()
    beside.rename(node / BASIS_FILE)
    assert ", start " in planned() and "at most" not in planned()


def test_memory_plan__start_of_weights_that_wait__waits_beside_them(tmp_path: Path) -> None:
    plain = demo_run(MethodOptions(), 10).manifest
    manifest, file = with_start(plain, {0, len(plain.tensors) - 1})
    (tmp_path / "basis").write_bytes(file)
    first, last = (plain.tensors[index].rows * plain.tensors[index].cols * 4 for index in (0, -1))
    whole, split = (
        memory_plan.plan_memory(manifest, model_folder(), "fp32", limit, tmp_path / "basis") for limit in (None, 1)
    )
    assert (whole.start, whole.start_waiting) == (first + last, 0)
    assert split.start_waiting >= last and split.start + split.start_waiting == whole.start
    assert split.elsewhere == split.waiting + split.start_waiting and split.peak_beside_card >= split.elsewhere


def test_memory_plan__limit_that_cannot_be_kept__says_what_can() -> None:
    manifest = demo_run(MethodOptions(), 10).manifest
    with pytest.raises(OperatorError, match="--device-memory and --dtype int8 do not go together"):
        memory_plan.plan_memory(manifest, model_folder(), "int8", 1)
    assert memory_plan.foresee_memory(manifest, "embedded:tiny-opt", "int8", 1) is None  # the worker says it


def test_memory_plan__dense_core__is_one_pass_of_the_rows_and_records_of_their_own_length() -> None:
    drawn = demo_run(MethodOptions(), 10).manifest
    rows = drawn.task.batch_rows
    dense = replace(
        drawn,
        tensors=drawn.tensors[:1],
        method=replace(
            small_manifest(core="dense", rank=64, core_rows=1, directions=rows).method, basis_max=1, sides=1
        ),
    )
    plan, of_drawn = (memory_plan.plan_memory(each, model_folder(), "fp32") for each in (dense, drawn))
    tensor = dense.tensors[0]
    assert plan.bases == 4 * (1 * tensor.rows + 64 * tensor.cols)
    assert plan.closed == plan.start == 0 and plan.activations < of_drawn.activations
    assert memory_plan.ledger_bytes(dense, 2) == 2 * dense.steps * (205 + dense.numbers)
    assert memory_plan.ledger_bytes(drawn, 2) == 2 * drawn.steps * (205 + 2 * drawn.method.scalars)
