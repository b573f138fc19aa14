"""From rows to tokens: prompts, label words, choices, completions; what is wrong with a file is said with its line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from protocol.errors import OperatorError
from sfnode.training.task.encoding import Example, PromptEncoder, TaskData, read_task, row_batch
from tests.support.task_specs import CHOICE, CLASSIFICATION, COMPLETION, LONG_WORDS, TEXT, task_spec, write_rows
from tests.support.tiny_models import tiny_tokenizer

TASK = task_spec(CLASSIFICATION)
ROW = json.dumps({"sentence": "a good film", "label": 1})


def encoder(fields: Mapping[str, Any] = CLASSIFICATION, **changes: Any) -> PromptEncoder:
    return PromptEncoder(tiny_tokenizer(), task_spec(fields, **changes))


RULE = '{"check": {"exact": "good"}, "samples": 2, "tokens": 4}'
REWARD = {"kind": "reward", "template": "{sentence} it was", "completion": RULE, "label_words": [], "max_tokens": 4}


def encoded(row: object, fields: Mapping[str, Any] = CLASSIFICATION, **changes: Any) -> list[Example]:
    return list(encoder(fields, **changes).encode(row, "here:1"))


def tokens(text: str) -> tuple[int, ...]:
    return tuple(tiny_tokenizer().encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"data.jsonl: no examples"),
        ("\n\n", r"data.jsonl: no examples"),
        (ROW + "\n{oops\n", r"data.jsonl:2: not JSON"),
        (ROW + "\n\n[1]\n", r"data.jsonl:3: a JSON object with 'sentence', 'label'"),
        ('{"text": "a", "label": 0}\n', r"data.jsonl:1: field 'sentence' is missing"),
        ('{"sentence": "a"}\n', r"data.jsonl:1: field 'label' is missing"),
        (ROW + "\n" + ROW.replace("1", "2"), r"data.jsonl:2: label 2 is not a whole number of 0 ... 1"),
        (ROW.replace("1", "true"), r"data.jsonl:1: label true"),
        (ROW.replace('"a good film"', "7.5"), r"data.jsonl:1: field 'sentence' is 7.5, and not a text"),
        (ROW.replace("good", "\\ud800"), r"data.jsonl:1: field 'sentence' holds half of a surrogate pair"),
    ],
)
def test_examples__malformed_file__names_file_and_line(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(OperatorError, match=complaint):
        read_task(tiny_tokenizer(), TASK, path, None)


def test_read_task__rows_that_take_long__are_counted_while_they_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`init` of 300,000 rows gave no sign of life for 80 s."""
    for name in ("_PATIENCE_S", "_LINE_PAUSE_S"):
        monkeypatch.setattr(f"sfnode.reporter.{name}", 0.0)
    read_task(tiny_tokenizer(), TASK, [{"sentence": "good", "label": 1}] * 2, None)
    assert capsys.readouterr().err.startswith("reading the data: 1 rows, ")


def test_read_task__row_on_which_the_tokenizer_panics__is_named_and_the_process_lives() -> None:
    """A panic of its Rust code is no `Exception`: `init` showed a traceback, and a worker was restarted for ever."""
    tokenizer: Any = tiny_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Split(Regex("(a|aa)+$"), "isolated")])
    with pytest.raises(OperatorError, match=r"^row 2: the model's tokenizer fails: .*retry-limit-in-match"):
        read_task(tokenizer, TASK, [{"sentence": "a" * length + "!", "label": 1} for length in (1, 60)], None)
    with pytest.raises(OperatorError, match=r"^the task: the model's tokenizer fails: "):
        PromptEncoder(tokenizer, task_spec(CLASSIFICATION, label_words=["good", "a" * 60 + "!"]))


@pytest.mark.parametrize(
    ("fields", "row", "complaint"),
    [
        (CHOICE, {"sentence": "a", "label": 0}, "field 'choices' is missing; .* 'sentence', 'choices', 'label'"),
        (CHOICE, {"sentence": "a", "choices": ["b"], "label": 0}, r"\['b'\], not a list of two or more texts"),
        (CHOICE, {"sentence": "a", "choices": ["b", 1], "label": 0}, "not a list of two or more texts"),
        (CHOICE, {"sentence": "a", "choices": "bad", "label": 0}, "'bad', not a list of two or more texts, in JSON as"),
        (CHOICE, {"sentence": "a", "choices": ["bad", "good"], "label": 2}, r"label 2 is not a whole number"),
        (CHOICE, {"sentence": "a", "choices": ["bad", ""], "label": 0}, "no token to predict"),
        (CHOICE, {"sentence": "a", "choices": ["bad", "it " * 64], "label": 0}, "64 tokens, .* larger --max-tokens"),
        (COMPLETION, {"sentence": "a"}, "field 'response' is missing; .* 'sentence', 'response'"),
        (
            COMPLETION,
            {"sentence": "a", "response": ""},
            "no token to predict: 'sentence', 'response' must not be empty",
        ),
        (TEXT, {"text": "film"}, "no token to predict: 'text' must not be empty"),
        (TEXT, {"text": ""}, "no token to predict"),
        (TEXT, {"text": None}, "field 'text' is null, and not a text"),
        (CLASSIFICATION | {"template": "{sentence}"}, {"sentence": "", "label": 0}, "no token to predict"),
        (REWARD, {"Sentence ": "film"}, "field 'sentence' is missing; .*: rename 'Sentence ' to 'sentence'"),
        (REWARD | {"template": "{Film}"}, {"film": "a"}, "field 'Film' is missing; .*: rename 'film' to 'Film'"),
        (REWARD, {"sentence": "film"}, "answer of 4 tokens leaves no room: take fewer --answer-tokens or more"),
    ],
)
def test_row__not_what_its_kind_needs__is_refused_with_its_place(
    fields: Mapping[str, Any], row: object, complaint: str
) -> None:
    with pytest.raises(OperatorError, match=f"^here:1: .*{complaint}"):
        encoded(row, fields)


def test_examples__missing_file__names_it(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"none\.jsonl: cannot be read"):
        read_task(tiny_tokenizer(), TASK, None, tmp_path / "none.jsonl")


def test_examples__bytes_that_are_not_utf8__are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"{\xff}")
    with pytest.raises(OperatorError, match="cannot be read as UTF-8"):
        read_task(tiny_tokenizer(), TASK, path, None)


@pytest.mark.parametrize(
    "template", ["no field", "{", "{} it was", "{0}", "{label}", "{a.b}", "{a!r}", "{a:>9}", "{choices}"]
)
def test_template__without_proper_field__is_refused(template: str) -> None:
    with pytest.raises(OperatorError, match="template"):
        encoder(template=template)


@pytest.mark.parametrize(
    ("fields", "changes", "complaint"),
    [
        (CHOICE, {"completion": " {sentence}"}, r"completion ' \{sentence\}': .*\{choice\}"),
        (CHOICE, {"template": "{choice} it"}, "completion of a choice task only"),
        (COMPLETION, {"completion": " {choice}"}, "completion of a choice task only"),
        (COMPLETION, {"completion": " bad"}, r"completion ' bad': name fields .*\{text\}"),
        (COMPLETION, {"completion": " {label}"}, "completion ' {label}': {label} is not a field"),
        (CLASSIFICATION, {"template": "{choice} it"}, "completion of a choice task only"),
    ],
)
def test_completion__that_does_not_fit_its_kind__is_refused(
    fields: Mapping[str, Any], changes: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(OperatorError, match=complaint):
        encoder(fields, **changes)


def test_template__doubled_braces_and_field_used_twice__are_text() -> None:
    (example,) = encoded({"sentence": "bad", "label": 0}, template="{sentence} {{ {sentence} it", max_tokens=64)
    assert example.tokens == tokens("bad { bad it")


def test_prompt__too_long__keeps_the_end_of_the_template() -> None:
    words = " ".join(["very"] * 20)
    (short,), (whole,) = (encoded({"sentence": words, "label": 0}, max_tokens=limit) for limit in (6, 64))
    assert len(short.tokens) == 6
    assert short.tokens == whole.tokens[-6:]


@pytest.mark.parametrize("fields", [CLASSIFICATION, LONG_WORDS, REWARD], ids=["words", "long words", "reward"])
def test_prompt__that_fits_exactly__is_not_called_cut(fields: Mapping[str, Any]) -> None:
    """A fault once: `init` warned of prompts that lose their beginning where none did."""
    found = [encoded({"sentence": "very " * count, "label": 0}, fields, max_tokens=12)[0] for count in range(1, 12)]
    lost = [2 + count - len(example.tokens) for count, example in enumerate(found, start=1)]
    assert [example.lost for example in found] == lost and any(lost) and not all(lost)


@pytest.mark.parametrize(("before", "after"), [(1, 12), (12, 1), (6, 6)])
def test_completion__too_long_at_either_end__is_called_cut(before: int, after: int) -> None:
    """A fault once: `init` warned of label words' prompts only. Plain text loses none of its tokens."""
    row = {"sentence": "very " * before, "response": "good " * after}
    whole = before + after
    for limit in range(4, 20):
        (example,) = encoded(row, COMPLETION, template="{sentence}", completion=" {response}", max_tokens=limit)
        is_whole = len(example.tokens) + len(example.candidates[0]) == whole
        assert example.lost == max(0, whole - limit) and is_whole == (limit >= whole)
    assert not any(each.lost for each in encoded({"text": "very " * 20}, TEXT, max_tokens=4))


def test_label_words__one_token_each__rows_are_prompts_alone() -> None:
    assert encoder().label_tokens == (tokens("bad")[0], tokens("good")[0])
    assert encoded({"sentence": "film", "label": 1}) == [Example(tokens=tokens("film it was"), label=1)]


@pytest.mark.parametrize(
    ("words", "lead", "following"),
    [
        (["good film", "bad"], "", "good bad"),
        (["very good film", "very bad"], "very", "good bad"),
        (["it was very bright", "it was not", "it was dull"], "it was", "very not dull"),
    ],
)
def test_label_words__of_several_tokens_that_one_sets_apart__rows_are_prompts_and_what_all_words_begin_with(
    words: list[str], lead: str, following: str
) -> None:
    """Labels as data have them (ABBR, ENTY) took a row of the pass each, and learnt far less of it."""
    assert encoder(label_words=words).label_tokens == tokens(following)
    found = encoded({"sentence": "a film", "label": 1}, label_words=words, max_tokens=6)
    assert found == [Example(tokens=(tokens("a film it was") + tokens(lead))[-6:], label=1)]


def test_label_words__what_they_begin_with__is_never_cut() -> None:
    words = ["it was very very bright", "it was very very dull"]
    (example,) = encoded({"sentence": "a very bright film", "label": 1}, label_words=words, max_tokens=6)
    assert (example.tokens, example.lost) == (tokens("it was it was very very"), 4)
    with pytest.raises(OperatorError, match=r"here:1: .* is 4 tokens, .* the run's 4; .*--max-tokens"):
        encoded({"sentence": "film", "label": 1}, label_words=words, max_tokens=4)


@pytest.mark.parametrize("words", [["not dull", "bright", "not bad"], ["very", "very bad"], ["it was", "it was bad"]])
def test_label_words__that_no_one_token_sets_apart__follow_the_prompt_as_candidates(words: list[str]) -> None:
    found = encoder(label_words=words)
    assert (found.lead, found.label_tokens) == ((), ())
    (example,) = encoded({"sentence": "film", "label": 1}, label_words=words, max_tokens=12)
    assert example.candidates == tuple(map(tokens, words))


def test_label_words__several_tokens__follow_the_prompt_as_candidates() -> None:
    assert encoder(LONG_WORDS).label_tokens == ()
    words = tuple(tokens(word) for word in LONG_WORDS["label_words"])
    assert [len(word) for word in words] == [2, 1, 4]
    (example,) = encoded({"sentence": "film", "label": 1}, LONG_WORDS)
    assert example == Example(tokens=tokens("film it was"), label=1, candidates=words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["bad", "bad"], "label words 'bad' and 'bad' are the same tokens"),
        (["awful", "horrid"], "'awful' and 'horrid' are the same tokens"),  # neither is in the vocabulary
        (["bad", " "], "label word ' ' has no token"),
    ],
)
def test_label_words__that_cannot_be_told_apart__are_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(OperatorError, match=complaint):
        encoder(label_words=words)


def test_label_words__longer_than_a_row__are_refused() -> None:
    with pytest.raises(OperatorError, match=r"here:1: .* is 4 tokens, .* the run's 4; .*--max-tokens"):
        encoded({"sentence": "film", "label": 1}, LONG_WORDS, max_tokens=4)


def test_choices__of_different_lengths__leave_the_prompt_room_for_the_longest() -> None:
    row = {"sentence": "a very bright film", "choices": ["bad", "not very good"], "label": 1}
    (example,) = encoded(row, CHOICE, max_tokens=6)
    assert example.tokens == tokens("bright film it")
    assert example.candidates == (tokens("bad"), tokens("not very good"))
    assert (example.label, example.rows, example.width) == (1, 2, 5)


def test_choices__prompt_of_no_tokens__may_be_whole_sentences() -> None:
    row = {"choices": ["a dull film", "film"], "label": 0}
    with pytest.raises(OperatorError, match="no token to predict"):  # nothing comes before the one token of "film"
        encoded(row, CHOICE, template="", completion="{choice}")
    (example,) = encoded({**row, "choices": ["a dull film", "a film"]}, CHOICE, template="", completion="{choice}")
    assert example == Example(tokens=(), label=0, candidates=(tokens("a dull film"), tokens("a film")))


@pytest.mark.parametrize(
    ("sentence", "response", "prompt", "kept"),
    [
        ("film", "was bad", "film it", "was bad"),
        ("very very very film", "was bad", "very very film it", "was bad"),
        ("film", "a a a a a a", "film it", "a a a a"),
        ("very very very film", "a a a a a a", "very film it", "a a a"),
    ],
)
def test_completion__too_long__prompt_keeps_at_most_half(sentence: str, response: str, prompt: str, kept: str) -> None:
    (example,) = encoded({"sentence": sentence, "response": response}, COMPLETION, max_tokens=6)
    lost = len(f"{sentence} it {response}".split()) - 6
    assert example == Example(tokens=tokens(prompt), label=0, candidates=(tokens(kept),), lost=max(0, lost))


def test_text__longer_than_a_row__every_token_but_the_first_is_predicted_once() -> None:
    words = tokens("a film was good it was very bright not dull")
    for limit in range(4, 12):
        pieces = encoded({"text": "a film was good it was very bright not dull"}, TEXT, max_tokens=limit)
        assert [example.tokens for example in pieces] == [()] * len(pieces)
        assert max(len(example.candidates[0]) for example in pieces) <= limit
        assert sum((example.candidates[0][1:] for example in pieces), ()) == words[1:]


@pytest.fixture
def llama_like(shared_folder: Path) -> PreTrainedTokenizerBase:
    """Puts <s> before a text, and a space before whatever stands alone."""
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(shared_folder / "models" / "stories260K")
    return found


def test_text__tokenizer_with_a_first_token__begins_every_piece_with_it(llama_like: PreTrainedTokenizerBase) -> None:
    text = "Once upon a time there was a little girl. She had a big dog."
    whole = tuple(llama_like.encode(text))
    pieces = PromptEncoder(llama_like, task_spec(TEXT, max_tokens=8)).encode({"text": text}, "here")
    assert all(example.tokens == whole[:1] for example in pieces)
    assert max(example.width + 1 for example in pieces) == 8
    assert sum((example.candidates[0] for example in pieces), ()) == whole[1:]


def test_following_text__tokenizer_that_puts_a_space_before_it__is_as_after_a_prompt(
    llama_like: PreTrainedTokenizerBase,
) -> None:
    task = task_spec(LONG_WORDS, template="{sentence} It was", label_words=[" sad", " sadly", " happy"])
    (example,) = PromptEncoder(llama_like, task).encode({"sentence": "The dog ran.", "label": 0}, "here")
    for word, candidate in zip(task.label_words, example.candidates, strict=True):
        assert (*example.tokens, *candidate) == tuple(llama_like.encode(f"The dog ran. It was{word}"))


def test_prompt__tokenizer_with_a_first_token__keeps_it_when_cut(shared_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(shared_folder / "models" / "opt-reviews-4m")
    task = task_spec(CLASSIFICATION, label_words=[" no", " yes"], template="{sentence} It was")
    (example,) = PromptEncoder(tokenizer, task).encode({"sentence": "a b c d e f g h i j", "label": 0}, "here")
    whole = tokenizer.encode("a b c d e f g h i j It was")
    first = tuple(whole[: whole.index(tokenizer.encode("a", add_special_tokens=False)[0])])
    assert example.tokens[: len(first)] == first
    assert example.tokens[-2:] == tuple(tokenizer.encode(" It was", add_special_tokens=False)[-2:])


def test_read_task__both_files__gives_examples_of_each(tmp_path: Path) -> None:
    rows = [{"sentence": "film", "label": 1}] * 3
    train, held_out = (write_rows(tmp_path / name, rows[:count]) for name, count in (("a", 3), ("b", 1)))
    data = read_task(tiny_tokenizer(), TASK, train, held_out)
    assert (len(data.examples), len(data.evaluation_examples)) == (3, 1)
    assert read_task(tiny_tokenizer(), TASK, None, None) == TaskData(label_tokens=data.label_tokens)


def test_row_batch__different_lengths__pads_on_the_right() -> None:
    rows = row_batch([Example(tokens=(5, 6, 7), label=1), Example(tokens=(8,), label=0)], 9, torch.device("cpu"))
    assert rows.tokens.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert rows.last.tolist() == [2, 0]
    assert rows.labels.tolist() == [1, 0]
