"""Zeroth-order training teaches the embedded model, and its export says so without any code of ours."""

from __future__ import annotations

import json
import re
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from protocol.run.method import ScheduleKind
from protocol.subspace.basis_file import Bases
from sfnode.demo import data_file, model_folder
from sfnode.run.manifest_builder import MethodOptions
from sfnode.training.export.adapter import export_adapter
from sfnode.training.export.hugging_face_folder import export_model
from sfnode.training.model import loading
from sfnode.training.task.encoding import PromptEncoder, read_examples
from tests import REPOSITORY
from tests.support.demo_run import DemoRun, demo_run

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 20  # with a rate that makes them enough


@pytest.fixture(scope="module")
def trained() -> DemoRun:
    run = demo_run(MethodOptions(learning_rate=5e-4, schedule=ScheduleKind.CONSTANT, epoch_steps=15), STEPS)
    run.train(0, STEPS)
    return run


def test_demo_training__a_few_steps_of_four_authors__gain_twenty_points(trained: DemoRun) -> None:
    before = demo_run(MethodOptions(), STEPS).session.evaluate()
    after = trained.session.evaluate()
    assert before.rows == 512
    assert 0.45 <= before.accuracy <= 0.55
    assert after.accuracy >= before.accuracy + 0.2
    assert after.loss < before.loss


def _evaluated(folder: Path, data: Path, script: str) -> str:
    """What the script prints about the model in `out`. It runs in this process: only its imports would take longer."""
    (folder / "evaluate.py").write_text(script)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(sys, "argv", ["evaluate.py", str(folder / "out"), str(data)])
        runpy.run_path(str(folder / "evaluate.py"), run_name="__main__")
    return printed.getvalue()


def _script() -> str:
    """The evaluation script of the documentation, as it is printed there."""
    found = re.search(
        r"```python\n(.*?)```", (REPOSITORY / "docs" / "evaluate_export.md").read_text("utf-8"), re.DOTALL
    )
    assert found
    return found[1]


def test_export_model__evaluated_by_the_script_of_the_docs__has_the_accuracy_that_we_report(
    trained: DemoRun, tmp_path: Path
) -> None:
    export_model(Bases(trained.manifest), trained.coefficients, model_folder(), tmp_path / "out")
    found = _evaluated(tmp_path, data_file(split="eval"), _script())
    assert found == f"accuracy {trained.session.evaluate().accuracy:.4f} on 512 rows\n"


@pytest.mark.slow
def test_export_model__texts_with_spaces_at_their_ends__are_the_same_prompts_for_the_script_of_the_docs(
    trained: DemoRun, tmp_path: Path
) -> None:
    """It stripped them, and sfnode does not."""
    rows = [json.loads(line) for line in data_file(split="eval").read_text("utf-8").splitlines()[:64]]
    spaced = [row | {"sentence": f"  {row['sentence']} \u2028   "} for row in rows]
    data = tmp_path / "spaced.jsonl"
    data.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in spaced), "utf-8")
    encoder = PromptEncoder(loading.load_tokenizer(model_folder()), trained.manifest.task)
    export_model(Bases(trained.manifest), trained.coefficients, model_folder(), tmp_path / "out")
    seen = "    print(tokens)\n"
    printed = _evaluated(tmp_path, data, _script().replace("    with torch", seen + "    with torch"))
    prompts = [json.loads(line) for line in printed.splitlines()[:-1]]
    assert prompts == [list(example.tokens) for example in read_examples(data, encoder)]


def test_export_adapter__of_a_trained_demo__gives_the_logits_of_the_folder(trained: DemoRun, tmp_path: Path) -> None:
    export_model(Bases(trained.manifest), trained.coefficients, model_folder(), tmp_path / "folder")
    export_adapter(Bases(trained.manifest), trained.coefficients, model_folder(), tmp_path / "adapter")
    tokens = torch.arange(60).view(3, 20) * 12 + 3
    folder, base = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        for path in (tmp_path / "folder", model_folder())
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        expected, before = folder(tokens).logits, base(tokens).logits
        found = PeftModel.from_pretrained(base, tmp_path / "adapter")(tokens).logits
    assert (found - expected).abs().max() < 1e-4
    assert (before - expected).abs().max() > 1e-2
