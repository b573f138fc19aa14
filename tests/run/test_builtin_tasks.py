"""Tasks known by name: the document shows each as it is, its rows train and evaluate; so do real rows of four."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from protocol.run.manifest import Manifest, checked, decode_run_untrusted, sign_manifest
from protocol.run.task import Objective, TaskKind
from protocol.schema import to_plain
from protocol.subspace.basis_file import Bases
from sfnode.model_files.resolve import resolve_model
from sfnode.run.builtin_tasks import BUILTIN_TASKS, TaskTexts, kind_of
from sfnode.run.task_options import TaskOptions, task_texts
from sfnode.training.estimator import Estimator
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.model.weights_digest import load_described
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task
from sfnode.training.worker_process import ModelPool, Service
from sfnode.worker_protocol.messages import (
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    OpenSession,
    SessionOpened,
)
from sfnode.worker_protocol.training_config import DeviceOptions, TrainingConfig
from tests import REPOSITORY
from tests.support.cli_calls import assert_teaches, call
from tests.support.commands import commands_in, parse_command
from tests.support.manifests import OWNER
from tests.support.task_specs import write_rows
from tests.support.tiny_models import model_manifest

DOCUMENT = (REPOSITORY / "docs" / "tasks.md").read_text("utf-8")
SECTIONS = {
    name: text
    for name, text in re.findall(r"^### (\S+)\n(.*?)(?=^##)", DOCUMENT, re.MULTILINE | re.DOTALL)
    if name in BUILTIN_TASKS
}
CPU = torch.device("cpu")


Loaded = tuple[SharedModel, PreTrainedTokenizerBase]


def row_in(name: str) -> dict[str, Any]:
    (block,) = re.findall(r"```json\n(.*?)```", SECTIONS[name], re.DOTALL)
    row: dict[str, Any] = json.loads(block)
    return row


def manifest_of(model: PreTrainedModel, task: TaskTexts, **changes: Any) -> Manifest:
    fields = {
        "kind": task.kind.value,
        "template": task.template,
        "completion": task.completion,
        "label_words": list(task.label_words),
        "max_tokens": 64,
        "batch_rows": 4,
        **changes,
    }
    return model_manifest(model, [TensorGroup.LINEAR], task=fields, directions=2, quantum_exp=-16)


@pytest.fixture(scope="module")
def embedded() -> Loaded:
    folder = resolve_model("embedded:tiny-opt").path
    return SharedModel(load_causal_lm(folder, CPU, torch.float32)), load_tokenizer(folder)


def test_document__sections__are_the_known_tasks() -> None:
    assert sorted(SECTIONS) == sorted(BUILTIN_TASKS)


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_document__known_task__is_shown_as_it_is(name: str) -> None:
    task, text = BUILTIN_TASKS[name], SECTIONS[name].replace("\\n", "\n")
    assert f"template `{task.template}`" in text if task.template else "template empty" in text
    assert f"completion `{task.completion}`" in text if task.completion else "completion" not in text
    words = ", ".join(f"`{word}`" for word in task.label_words)
    assert f"label words {words}\n" in text if words else "label words" not in text
    (command,) = commands_in(re.findall(r"^`(sfnode .*)`$", text, re.MULTILINE)[0])
    parse_command(command)
    assert command[command.index("--task") + 1] == name


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_known_task__row_of_the_document__trains_and_evaluates(name: str, embedded: Loaded, tmp_path: Path) -> None:
    shared, tokenizer = embedded
    manifest = manifest_of(shared.model, BUILTIN_TASKS[name])
    rows = write_rows(tmp_path / "rows.jsonl", [row_in(name)])
    session = Estimator(shared, Bases(manifest), read_task(tokenizer, manifest.task, rows, rows))
    estimate, evaluation = session.estimate(5, 3), session.evaluate()
    assert any(estimate.scalars)
    assert evaluation.rows == 1
    assert evaluation.loss > 0
    assert evaluation.accuracy in (0.0, 1.0) or BUILTIN_TASKS[name].kind is TaskKind.COMPLETION


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_known_task__row_without_one_of_its_fields__is_refused(name: str, embedded: Loaded, tmp_path: Path) -> None:
    """The document's row has no field too many either."""
    for field in row_in(name):
        row = {key: value for key, value in row_in(name).items() if key != field}
        data = write_rows(tmp_path / "rows.jsonl", [row])
        arguments = ("--model", "embedded:tiny-opt", "--task", name, "--data", data, "--out", tmp_path / "a.run")
        assert_teaches(call("init", *arguments), f"{data}:1", f"'{field}' is missing")


def test_kind__of_a_completion__follows_from_its_text() -> None:
    kinds = [TaskKind.CLASSIFICATION, TaskKind.CHOICE, TaskKind.COMPLETION]
    assert [kind_of(text) for text in ("", " {choice}", "{text}")] == kinds


# --- the command line -------------------------------------------------------------------------------------------


def test_init__task_list__shows_every_task_and_needs_nothing_else() -> None:
    outcome = call("init", "--task", "list")
    assert outcome.code == 0
    for name, task in BUILTIN_TASKS.items():
        assert re.search(rf"^{name} +{re.escape(task.about)}$", outcome.stdout, re.MULTILINE)
        assert repr(task.template) in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--task", "copa"), (TaskKind.CHOICE, "{premise} {connector}", " {choice}", (), Objective.LOSS)),
        (
            ("--task", "copa", "--template", "{premise}, {connector}", "--objective", "accuracy"),
            (TaskKind.CHOICE, "{premise}, {connector}", " {choice}", (), Objective.ACCURACY),
        ),
        (("--completion", "{text}"), (TaskKind.COMPLETION, "", "{text}", (), Objective.LOSS)),
        (
            ("--template", "{a} is", "--labels", " not so good, good", "--objective", "f1"),
            (TaskKind.CLASSIFICATION, "{a} is", "", (" not so good", " good"), Objective.F1),
        ),
        (
            ("--task", "sst2", "--labels", " bad, good"),
            (TaskKind.CLASSIFICATION, "{sentence} It was", "", (" bad", " good"), Objective.LOSS),
        ),
        (
            ("--task", "sst2", "--completion", " {label_text}"),
            (TaskKind.COMPLETION, "{sentence} It was", " {label_text}", (), Objective.LOSS),
        ),
    ],
)
def test_init__task_of_ones_own__is_in_the_manifest(
    arguments: tuple[str, ...], expected: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "new.run"
    outcome = call("init", "--model", "embedded:tiny-opt", "--private-data", "--out", out, *arguments)
    assert outcome.code == 0, outcome
    task = decode_run_untrusted(out.read_bytes()).manifest.task
    assert (task.kind, task.template, task.completion, task.label_words, task.objective) == expected


@pytest.mark.parametrize(
    ("template", "labels", "wanted"),
    [
        ("{a} It was", "no,yes", ("{a} It was", " no", " yes")),
        ("{a} It was", " no,yes", ("{a} It was", " no", " yes")),
        ("{a} It was ", "no,yes", ("{a} It was", " no", " yes")),
        ("Is it? {a}", "no,yes", ("Is it? {a}", " no", " yes")),
        ("{a} Sentiment:", "no,yes", ("{a} Sentiment:", " no", " yes")),
        ("{a} It was", " no, yes", ()),
        ("{a} (mood)", "no,yes", ("{a} (mood)", " no", " yes")),
        ("{a} Yes or No?\n", "No,Yes", ()),  # a line begins with the word
        (r"{a} Yes or No?\n", "No,Yes", ("{a} Yes or No?\n", "No", "Yes")),  # as typed in a shell
        (r"{a} Yes or No?\\n", "No,Yes", (r"{a} Yes or No?\n", " No", " Yes")),
        ('{a} is "', "no,yes", ()),
        ("{a} It was ", " no, yes", ("{a} It was", " no", " yes")),  # two spaces in every row
        ("{a} It was", "\u597d,\u574f", ()),  # written without spaces
        ("{a} It was", "\u597d, \u574f", ("{a} It was", " \u597d", " \u574f")),
        (
            "{a} \u0422\u0435\u043c\u0430:",
            "\u0434\u0430, \u043d\u0435\u0442",
            ("{a} \u0422\u0435\u043c\u0430:", " \u0434\u0430", " \u043d\u0435\u0442"),
        ),
        ("{a} Niveau :", "\u00e9lev\u00e9,bas", ("{a} Niveau :", " \u00e9lev\u00e9", " bas")),
    ],
)
def test_init__label_words_that_run_into_the_prompt__get_their_space(
    template: str, labels: str, wanted: tuple[str, ...], tmp_path: Path
) -> None:
    out, task = tmp_path / "a.run", ("--template", template, "--labels", labels)
    outcome = call("init", "--model", "embedded:tiny-opt", "--private-data", "--out", out, *task)
    assert outcome.code == 0, outcome
    found = decode_run_untrusted(out.read_bytes()).manifest.task
    assert (found.template, *found.label_words) == (wanted or (template, *labels.split(",")))
    is_respelled = found.label_words != tuple(labels.split(",")) or template.endswith(" ")
    assert ("Note: taken as --labels" in outcome.stderr) == is_respelled


@pytest.mark.parametrize(
    ("task", "is_said"),
    [
        (("--template", "{a} Title: ", "--completion", "{b}"), True),
        (("--template", "{a} Title:", "--completion", " {b}"), False),
        (("--template", "{a} \u4e3b\u9898: ", "--labels", "\u65b0\u95fb,\u4f53\u80b2"), True),
        (("--template", "{a} Topic: ", "--labels", "no,yes"), False),  # the note says what is made of it
    ],
)
def test_init__prompt_that_ends_with_a_space__is_said_to_part_words_from_theirs(
    task: tuple[str, ...], is_said: bool, tmp_path: Path
) -> None:
    """Where no label words take the space over, it stayed, and nothing was said."""
    out = tmp_path / "a.run"
    outcome = call("init", "--model", "embedded:tiny-opt", "--private-data", "--out", out, *task)
    assert outcome.code == 0, outcome
    assert ("the prompt ends with a space" in outcome.stderr) == is_said


def test_init__chat_template_that_ends_with_a_space__is_no_slip_of_the_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a run cannot leave it out: it is the model's."""
    monkeypatch.setattr("sfnode.training.chat.chat_prompt", lambda _tokenizer, own, _is_chat: f"User: {own} Bot: ")
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(f'{{"prompt": "a film {number}", "wanted": "good"}}\n' for number in range(40)), "utf-8")
    given = ("--reward", "exact:{wanted}", "--answer", "", "--answer-tokens", 2, "--data", data, "--private-data")
    outcome = call("init", "--model", "embedded:tiny-opt", "--out", tmp_path / "a.run", *given)
    assert outcome.code == 0 and "ends with a space" not in outcome.stderr, outcome


def test_builtin_task__none_of_them__needs_another_spelling() -> None:
    texts = [task_texts(TaskOptions(task=name)) for name in BUILTIN_TASKS]
    assert [each for each in texts if each != each.spelled] == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--task", "copa", "--labels", " a, b"), ("--labels", "--completion", "leave one of them out")),
        (("--completion", "{text}", "--objective", "accuracy"), ("task.objective", "completion", "loss")),
        (("--completion", "text"), ("completion 'text'", "{text}")),
        (("--task", "sst2", "--objective", "bleu"), ("--objective", "bleu", "accuracy")),
        ((), ("--task sst2", "--task list", "--template", "--labels", "--completion")),
    ],
)
def test_init__task_that_cannot_be__says_what_to_give(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path
) -> None:
    outcome = call("init", "--model", "embedded:tiny-opt", "--private-data", "--out", tmp_path / "new.run", *arguments)
    assert_teaches(outcome, *parts)


@pytest.mark.parametrize("name", ["copa", "instruction", "text", "trec"])
def test_worker__task_of_each_kind__answers_every_request(name: str, tmp_path: Path) -> None:
    folder = resolve_model("embedded:tiny-opt")
    task = manifest_of(load_causal_lm(folder.path, CPU, torch.float32), BUILTIN_TASKS[name])
    run = checked({**to_plain(task, as_rows=False), "model": to_plain(load_described(folder)[1], as_rows=False)})
    data = write_rows(tmp_path / "rows.jsonl", [row_in(name)] * 3)
    service = Service(ModelPool())
    training = TrainingConfig(model="embedded:tiny-opt", data=data, eval_data=data, devices=DeviceOptions(device="cpu"))
    opening = OpenSession(manifest=sign_manifest(run, OWNER).encode(), training=training)
    opened = service.answer(opening)
    request = EstimateRequest(step=1, seed=5, directions=run.method.directions)
    estimated, evaluated = service.answer(request), service.answer(EvaluateRequest())
    assert isinstance(opened, SessionOpened) and opened.data_rows == 3
    assert isinstance(estimated, Estimated) and any(estimated.scalars)
    assert isinstance(evaluated, Evaluated) and evaluated.rows == 3


def test_run__choices_and_accuracy__trains_and_is_evaluated_from_the_command_line(tmp_path: Path) -> None:
    data, out, node = write_rows(tmp_path / "a.jsonl", [row_in("copa")] * 4), tmp_path / "a.run", tmp_path / "node"
    task = ("--task", "copa", "--objective", "accuracy", "--data", data, "--batch-rows", 8, "--admission", "open")
    made = call("init", "--model", "embedded:tiny-opt", *task, "--plain", "--steps", 4, "--out", out)
    assert made.code == 0, made
    training = ("--data", data, "--exit-when-finished", "--threads", 1, "--json")
    joined = call("join", "--run", out, "--data-dir", node, "--device-memory", 1, *training)
    assert joined.code == 0, joined
    told = json.loads(call("eval", "--data-dir", node, "--eval-data", data, "--json").stdout)["after"]
    assert (told["rows"], told["accuracy"]) in ((4, 0.0), (4, 1.0))  # four times the same row
    assert told["loss"] > 0


# --- real rows --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reviews_model(shared_folder: Path) -> Loaded:
    folder = shared_folder / "models" / "opt-reviews-4m"
    return SharedModel(load_causal_lm(folder, CPU, torch.float32)), load_tokenizer(folder)


@pytest.mark.parametrize(
    ("name", "held_out", "rows"),
    [("sst2", "dev_872", 872), ("rte", "dev_277", 277), ("trec", "test_500", 500), ("agnews", "test_1000", 1000)],
)
def test_real_data__every_row__is_read_and_some_are_scored(
    name: str,
    held_out: str,
    rows: int,
    shared_folder: Path,
    reviews_model: Loaded,
) -> None:
    shared, tokenizer = reviews_model
    manifest = manifest_of(shared.model, BUILTIN_TASKS[name])
    folder = shared_folder / "data" / name
    data = read_task(tokenizer, manifest.task, folder / "train_1024.jsonl", folder / f"{held_out}.jsonl")
    assert (len(data.examples), len(data.evaluation_examples)) == (1024, rows)
    assert max(example.width for example in data.examples) <= 64
    session = Estimator(shared, Bases(manifest), data)
    assert any(session.estimate(5, 3).scalars)
    assert session.evaluate(16).rows == 16


def test_real_data__sst2_by_name__starts_at_the_known_accuracy(shared_folder: Path, reviews_model: Loaded) -> None:
    """76 % on SST-2's dev set with MeZO's template and words, as the model's makers measured."""
    shared, tokenizer = reviews_model
    manifest = manifest_of(shared.model, BUILTIN_TASKS["sst2"])
    data = read_task(tokenizer, manifest.task, None, shared_folder / "data" / "sst2" / "dev_872.jsonl")
    found = Estimator(shared, Bases(manifest), data).evaluate()
    assert found.accuracy == pytest.approx(0.76, abs=0.01)


# --- the converter of the document ------------------------------------------------------------------------------

SUPERGLUE = {
    "copa": {
        "premise": "I ran.", "question": "cause", "choice1": "The bus left.", "choice2": "I slept.", "label": 0
    },
    "wsc": {
        "text": "Ann thanked Eva because she helped.",
        "target": {"span1_text": "Eva", "span2_text": "she", "span1_index": 2, "span2_index": 4},
        "label": True,
    },
    "multirc": {
        "passage": {
            "text": "Tom fed the dog.",
            "questions": [{"question": "Who?", "answers": [{"text": "a", "label": 0}, {"text": "b", "label": 1}]}],
        }
    },
    "record": {
        "passage": {
            "text": "Ada met Alan.\n@highlight\nThey talked.",
            "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 11}],
        },
        "qas": [{"query": "@placeholder left.", "answers": [{"text": "Alan"}]}],
    },
    "boolq": {"question": "is it", "passage": "It is.", "label": True},
    "cb": {"premise": "It is.", "hypothesis": "it is", "label": "entailment"},
    "rte": {"premise": "It is.", "hypothesis": "It is not.", "label": "not_entailment"},
    "wic": {"word": "a", "sentence1": "A b.", "sentence2": "A c.", "label": False},
}  # fmt: skip


@pytest.mark.parametrize("name", SUPERGLUE)
def test_converter__row_of_superglue__fits_the_task(name: str, embedded: Loaded, tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    made = subprocess.run(
        [sys.executable, "-c", script, name],
        input=json.dumps(SUPERGLUE[name]) + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    if name == "copa":
        assert rows[0]["connector"] == "because" and rows[0]["choices"] == ["the bus left.", "I slept."]
    if name == "record":
        assert rows[0]["choices"] == ["Ada left.", "Alan left."] and rows[0]["label"] == 1
    assert len(rows) == (2 if name == "multirc" else 1)
    shared, tokenizer = embedded
    data = read_task(
        tokenizer, manifest_of(shared.model, BUILTIN_TASKS[name]).task, write_rows(tmp_path / "r", rows), None
    )
    assert len(data.examples) == len(rows)
