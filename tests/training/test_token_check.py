"""Label words as they follow a prompt, and tokens for which a model has no row: seen before anything is trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from transformers import PreTrainedTokenizerFast

from protocol.errors import OperatorError
from protocol.schema import to_plain
from sfnode import demo
from sfnode.model_files.model_folder import ModelFolder
from sfnode.training import token_check
from sfnode.training.described_model import describe_run
from sfnode.training.model.loading import load_tokenizer, token_rows
from sfnode.training.task.encoding import PromptEncoder, read_task
from tests.support.task_specs import CHOICE, CLASSIFICATION, COMPLETION, task_spec
from tests.support.tiny_models import tiny_llama, tiny_opt, tiny_tokenizer

PIECES = ["<unk>", "▁a", "\n", "▁it", "▁was", "Yes", "▁Yes", "No", "▁No", "▁", "▁good", "good", "▁bad", "bad"]


def spaced(pieces: Sequence[str] = PIECES) -> PreTrainedTokenizerFast:
    """A tokenizer of Llama's kind: a space comes before a text that stands alone."""
    model = Tokenizer(Unigram([(piece, -float(number)) for number, piece in enumerate(pieces)], unk_id=0))
    model.pre_tokenizer = Metaspace(prepend_scheme="first")
    make: Any = PreTrainedTokenizerFast  # carries no types
    found: PreTrainedTokenizerFast = make(tokenizer_object=model, unk_token="<unk>")
    return found


def pieces_of(template: str, *words: str) -> list[str]:
    tokenizer = spaced()
    task = task_spec(CLASSIFICATION, template=template, label_words=list(words))
    return [*tokenizer.convert_ids_to_tokens(list(PromptEncoder(tokenizer, task).label_tokens))]


def test_label_words__after_a_line_break__are_not_those_that_stand_alone() -> None:
    """A fault once: ` Yes` was scored where the prompt ends in a line break and the word is `Yes`."""
    assert spaced().tokenize("Yes") == ["▁Yes"]
    assert pieces_of("{sentence}\n", "No", "Yes") == ["No", "Yes"]
    assert pieces_of("{sentence} it was", " No", " Yes") == ["▁No", "▁Yes"]


def test_shown_words__digits_of_several_tokens__are_said_how_to_be_set_apart() -> None:
    """After "Stars:", SmolLM2 reads " 1" as two tokens, and rows of five label words took five passes."""
    task = task_spec(CLASSIFICATION, template="{sentence} Stars:", label_words=[" 1", " 2", " 10"])
    encoder = PromptEncoder(load_tokenizer(demo.model_folder()), task)
    assert token_check.shown_words(encoder, task).endswith(
        "where one token sets them apart, as it often does with digits after a template that ends with \\n, "
        "a run learns more from each row"
    )


def test_shown_words__one_and_several_tokens_and_a_joined_end__are_said() -> None:
    def shown(template: str, *words: str) -> str:
        task = task_spec(CLASSIFICATION, template=template, label_words=list(words))
        return token_check.shown_words(PromptEncoder(spaced(), task), task)

    assert shown("{sentence}\n", "No", "Yes") == "label words: No, Yes; one token each after the prompt"
    assert shown("{sentence} it was", " No", " Yes").startswith('label words: " No", " Yes"; one token')
    assert shown("{sentence} it was", " good Yes", " bad") == (
        'label words: " good Yes", " bad"; 1 to 2 tokens after the prompt, and token 1 sets them apart'
    )
    assert shown("{sentence} it was", " good Yes", " good") == (
        'label words: " good Yes", " good"; 1 to 2 tokens after the prompt; where one token sets them apart, '
        "a run learns more from each row"
    )
    assert shown("{sentence} it was ", "good", "bad").endswith(
        "this tokenizer joins 'good' with the end of the template: end that otherwise"
    )
    task = task_spec(COMPLETION)
    assert token_check.shown_words(PromptEncoder(tiny_tokenizer(), task), task) == ""


# --- tokens without a row


def test_read_task__token_without_a_row__is_named_with_file_and_line(tmp_path: Path) -> None:
    """A fault once: a traceback at `init`; with --plain, a worker that died for ever."""
    tokenizer = tiny_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_tokens(["<|pad|>", "<|end|>"])
    tokenizer.pad_token = "<|pad|>"
    path = tmp_path / "rows.jsonl"
    path.write_text('{"sentence": "a film", "label": 0}\n\n{"sentence": "a film <|end|>", "label": 1}\n')
    task = task_spec(CLASSIFICATION)
    assert len(read_task(tokenizer, task, path, None).examples) == 2
    with pytest.raises(
        OperatorError, match=rf"rows\.jsonl:3: the text has '<\|end\|>', token {rows + 1} .*for {rows} "
    ):
        read_task(tokenizer, task, path, None, token_rows=rows)
    path.write_text('{"sentence": "a film", "label": 0}\n')
    assert read_task(tokenizer, task, path, None, token_rows=rows).pad == 0  # and not the padding token, which has none


def test_encoder__label_word_choice_or_completion_without_a_row__is_refused() -> None:
    tokenizer = tiny_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_tokens(["<|end|>"])
    with pytest.raises(OperatorError, match=r"label word ' <\|end\|>' has '<\|end\|>'"):
        PromptEncoder(tokenizer, task_spec(CLASSIFICATION, label_words=[" good", " <|end|>"]), rows)
    row = {"sentence": "a film", "choices": ["good", "<|end|>"], "response": "<|end|>", "label": 0}
    for fields in (CHOICE, COMPLETION):
        with pytest.raises(OperatorError, match="here: the text has"):
            PromptEncoder(tokenizer, task_spec(fields), rows).encode(row, "here")


def saved_model(folder: Path, added: Sequence[str]) -> Path:
    """A model with as many rows as the tiny tokenizer has tokens, and that tokenizer with more."""
    tokenizer = tiny_tokenizer()
    model = tiny_llama()
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.add_tokens(list(added))
    tokenizer.save_pretrained(folder)
    return folder


def test_describe_run__data_with_a_token_without_a_row__are_refused(tmp_path: Path) -> None:
    folder = ModelFolder(path=saved_model(tmp_path / "model", ["<|end|>"]), id="local:model", revision="")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"sentence": "a film <|end|>", "label": 1}\n')
    with pytest.raises(OperatorError, match=r"rows\.jsonl:1: the text has '<\|end\|>'"):
        describe_run(folder, "linear", task_spec(CLASSIFICATION, max_tokens=16), str(path))
    path.write_text('{"sentence": "a film", "label": 1}\n')
    assert describe_run(folder, "linear", task_spec(CLASSIFICATION, max_tokens=16), str(path)).words.startswith(
        "label words: "
    )


def test_token_check__program__prints_what_is_right_and_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved_model(tmp_path / "model", ["<|end|>"])
    found = []
    for words in ([" good", " bad"], [" good", " <|end|>"]):
        task = json.dumps(to_plain(task_spec(CLASSIFICATION, label_words=words), as_rows=False))
        monkeypatch.setattr(sys, "argv", ["token_check", str(folder), task])
        token_check.main()
        found.append(json.loads(capsys.readouterr().out))
    assert found[0][0].startswith("label words: ") and "1 of them have no row in the model" in found[0][0]
    assert found[0][1] == found[1][0] == "" and "label word ' <|end|>'" in found[1][1]


def test_token_rows__embedding_and_head__the_smaller_counts() -> None:
    model: Any = tiny_opt()
    rows = model.get_input_embeddings().weight.shape[0]
    assert token_rows(model) == rows
    model.get_input_embeddings().num_embeddings = rows - 2
    assert token_rows(model) == rows - 2
