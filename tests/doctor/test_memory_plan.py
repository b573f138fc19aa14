"""The memory plan of a node whose weights do not all stay on the device."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest
from sfnode.demo import model_folder
from sfnode.doctor import memory_plan
from sfnode.doctor.findings import Verdict
from sfnode.run.manifest_builder import MethodOptions
from tests.support.demo_run import demo_run
from tests.support.manifests import small_manifest
from tests.support.reward_runs import reward_manifest


@functools.cache
def drawn_manifest() -> Manifest:
    """Of the demo, along drawn directions."""
    return demo_run(MethodOptions(), 10).manifest


def test_memory_plan__weights_that_wait__are_planned_on_the_disk_or_beside_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = drawn_manifest()
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


def test_memory_plan__limit_that_cannot_be_kept__says_what_can() -> None:
    manifest = drawn_manifest()
    with pytest.raises(OperatorError, match="--device-memory and --dtype int8 do not go together"):
        memory_plan.plan_memory(manifest, model_folder(), "int8", 1)
    assert memory_plan.foresee_memory(manifest, "embedded:tiny-opt", "int8", 1) is None  # the worker says it


def test_memory_plan__dense_core__is_one_pass_of_the_rows_and_records_of_their_own_length() -> None:
    drawn = drawn_manifest()
    rows = drawn.task.batch_rows
    dense = replace(
        drawn,
        tensors=drawn.tensors[:1],
        method=small_manifest(core="dense", rank=64, core_rows=1, directions=rows).method,
    )
    plan, of_drawn = (memory_plan.plan_memory(each, model_folder(), "fp32") for each in (dense, drawn))
    tensor = dense.tensors[0]
    assert plan.bases == 4 * (1 * tensor.rows + 64 * tensor.cols)
    assert plan.closed == 0 and plan.activations < of_drawn.activations
    dense, drawn = replace(dense, authors_max=2), replace(drawn, authors_max=2)
    assert memory_plan.ledger_bytes(dense) == 2 * dense.steps * (205 + dense.numbers)
    assert memory_plan.ledger_bytes(drawn) == 2 * drawn.steps * (205 + 2 * drawn.method.scalars)


def test_memory_plan__rewards__has_room_for_keys_and_values_of_the_answers() -> None:
    manifest, _ = reward_manifest()
    task, plain = manifest.task, replace(manifest, task=drawn_manifest().task)
    config = json.loads((model_folder() / "config.json").read_text("utf-8"))
    each = 2 * config["num_hidden_layers"] * config["hidden_size"] * 4
    plans = {rows: _plan(replace(manifest, task=replace(task, batch_rows=rows))) for rows in (64, 1_024)}
    assert plans[64].answers == 64 * task.max_tokens * each
    assert plans[1_024].answers == 8_192 * each  # more are written one part after the other
    assert "keys and values of answers" in str(plans[64])
    assert plans[64].on_device - plans[64].answers == plans[64].weights + plans[64].bases + plans[64].activations
    assert _plan(plain).answers == 0


def _plan(manifest: Manifest) -> memory_plan.MemoryPlan:
    return memory_plan.plan_memory(manifest, model_folder(), "fp32")
