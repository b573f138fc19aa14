"""The script of docs/evaluate_export.md counts what `sfnode eval` counts, and stops in words where it cannot."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.subspace.basis_file import Bases
from sfnode import demo
from sfnode.training.export.hugging_face_folder import export_model
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.candidates import batch_of
from sfnode.training.task.encoding import read_task
from tests import REPOSITORY
from tests.training.exports import TrainedRun, save_base, trained_run


@pytest.fixture
def run(tmp_path: Path) -> TrainedRun:
    return trained_run(save_base("opt", tmp_path / "base"))


def _evaluate(monkeypatch: pytest.MonkeyPatch, out: Path, rows: Path) -> dict[str, object]:
    """Run the script of the guide; return the names that it leaves."""
    guide = (REPOSITORY / "docs" / "evaluate_export.md").read_text()
    (script,) = re.findall(r"```python\n(import json.*?)```", guide, re.S)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(out), str(rows)])
    made: dict[str, object] = {}  # of a module, as the script has a function
    exec(script, made)
    return made


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        ((" no", " yes"), ("no", "yes")),
        ((" a no", " a yes"), ("a no", "a yes")),
        ((" no", " yes"), (" No", "YES ")),
        ((" no", " yes"), ("0", "1")),
        ((" no", " yes"), ("+0", "1,0")),
        ((" 1", " 2"), ("1.0", "02")),
        ((" no", " No"), ("no", "No")),
    ],
    ids=["one token", "a common beginning", "spaces and capitals", "digits", "figures", "numbers", "case alone"],
)
def test_evaluate_export__script_of_the_guide__counts_what_sfnode_counts(
    words: tuple[str, ...],
    spelled: tuple[str, ...],
    run: TrainedRun,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faults once: the script took the first token of a label word that stands alone; labels in words were wrong."""
    out, rows = tmp_path / "out", tmp_path / "rows.jsonl"
    lines = [json.loads(line) for line in demo.data_file(split="eval").read_text().splitlines()[:40]]
    in_words = [line | {"label": spelled[line["label"]]} for line in lines[20:]]
    written = in_words if words == (" 1", " 2") else [*lines[:20], *in_words]
    rows.write_text("\n".join(map(json.dumps, written)), "utf-8-sig")
    task = replace(run.manifest.task, label_words=words)
    export_model(Bases(replace(run.manifest, task=task)), run.coefficients, run.base, out)
    data = read_task(load_tokenizer(out), task, None, rows)
    batch = batch_of(data, data.evaluation_examples, 1, torch.device("cpu"))
    right = SharedModel(load_causal_lm(out, torch.device("cpu"), torch.float32)).scores(batch, data.label_tokens).right
    made = _evaluate(monkeypatch, out, rows)
    assert made["words"] == list(data.label_tokens) and len(data.label_tokens) == 2
    assert bool(made["lead"]) is (words[0] in (" a no", " 1"))
    assert capsys.readouterr().out == f"accuracy {float(right.mean()):.4f} on {len(written)} rows\n"


def test_evaluate_export__accents_of_a_columns_name_are_characters_of_their_own__counts_the_same_rows(
    run: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: it ended in a traceback, KeyError."""
    task = replace(run.manifest.task, template="{r\u00e9ponse} It was")
    export_model(Bases(replace(run.manifest, task=task)), run.coefficients, run.base, tmp_path / "out")
    for name in ("r\u00e9ponse", "re\u0301ponse"):
        (tmp_path / "rows.jsonl").write_text(json.dumps({name: "The plot was dull.", "label": 0}))
        _evaluate(monkeypatch, tmp_path / "out", tmp_path / "rows.jsonl")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.endswith("on 1 rows")


@pytest.mark.parametrize(
    ("words", "label", "said"),
    [((" no", " no no"), 0, "no single token"), ((" no", " yes"), "maybe", "label 'maybe' is none of ['no', 'yes']")],
)
def test_evaluate_export__what_the_script_cannot_count__stops_in_words(
    words: tuple[str, ...], label: object, said: str, run: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(run.manifest.task, label_words=words)
    export_model(Bases(replace(run.manifest, task=task)), run.coefficients, run.base, tmp_path / "out")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"sentence": "The plot was dull.", "label": label}))
    with pytest.raises(SystemExit, match=re.escape(said)):
        _evaluate(monkeypatch, tmp_path / "out", tmp_path / "rows.jsonl")
