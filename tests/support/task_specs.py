"""Tasks for tests: one of each kind, for the word-level tokenizer of `tiny_models`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol.run.task import TaskSpec
from protocol.schema import from_plain_untrusted
from tests.support.manifests import manifest_data

CLASSIFICATION: dict[str, Any] = {"template": "{sentence} it was", "label_words": ["bad", "good"], "max_tokens": 6}
LONG_WORDS: dict[str, Any] = {
    "template": "{sentence} it was",
    "label_words": [" not dull", " bright", " not a bad film"],  # no one token sets them apart
}
CHOICE: dict[str, Any] = {
    "kind": "choice", "template": "{sentence} it", "completion": " {choice}", "label_words": []
}  # fmt: skip
COMPLETION: dict[str, Any] = {
    "kind": "completion", "template": "{sentence} it", "completion": " {response}", "label_words": []
}  # fmt: skip
TEXT: dict[str, Any] = {"kind": "completion", "template": "", "completion": "{text}", "label_words": []}

ROWS: dict[str, list[dict[str, object]]] = {
    "words": [
        {"sentence": "a film", "label": 1},
        {"sentence": "a very very bright film", "label": 0},
        {"sentence": "not dull", "label": 2},
        {"sentence": "it was", "label": 1},
    ],
    "choice": [
        {"sentence": "a film", "choices": ["was dull", "was very bright"], "label": 1},
        {"sentence": "a very very bright film was", "choices": ["good", "a bad film", "not very good"], "label": 2},
        {"sentence": "not", "choices": ["was not a very good film", "was"], "label": 0},
        {"sentence": "dull", "choices": ["bad", "good"], "label": 0},
    ],
    "completion": [
        {"sentence": "a film", "response": "was not very good"},
        {"sentence": "a very very bright film was", "response": "good"},
        {"sentence": "not", "response": "a film"},
        {"sentence": "dull", "response": "bad it was bad"},
    ],
    "text": [
        {"text": "a film was good it was very bright"},
        {"text": "dull film"},
        {"text": "it was not very good it was dull"},
        {"text": "a bright film"},
    ],
}
KINDS: dict[str, dict[str, Any]] = {"words": LONG_WORDS, "choice": CHOICE, "completion": COMPLETION, "text": TEXT}


def task_spec(fields: Mapping[str, Any], **changes: Any) -> TaskSpec:
    """A task of the tests' manifest with other fields."""
    plain = {**manifest_data()["task"], **fields, **changes}
    spec: TaskSpec = from_plain_untrusted(TaskSpec, plain, "task")
    return spec


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path
