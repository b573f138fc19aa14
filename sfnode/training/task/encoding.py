"""Encode rows of data as tokens of a run's task. All that this module knows of a model is its tokenizer.

A row has a prompt and texts that may follow it: the run's label words, the row's own choices, or one completion
(`protocol.run.task.TaskKind`). If one token sets the label words apart, the normaliser over the vocabulary cancels when
they are compared, so a row is its prompt alone. Otherwise `candidates` adds the texts that may follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run import TaskKind, TaskSpec
from sfnode.reporter import counting
from sfnode.rows import RowTexts, TaskTemplate, row_files
from sfnode.training.model import loading
from sfnode.training.task.answer_judge import AnswerJudge

Tokens = tuple[int, ...]
Rows = row_files.Rows
_CONTEXT = "a"  # precedes a text, so that the tokenizer does not take the text for the start of a document


@dataclass(frozen=True, slots=True)
class Example:
    """Holds a data row as tokens.

    Attributes:
        tokens: the prompt, and what all label words begin with. Together with the longest candidate at most max_tokens.
        label: index of the right label word or candidate.
        candidates: texts that may follow; one for a completion, none where `TaskData.label_tokens` are set, or where
            the model writes answers.
        fields: names and values of the row's fields that a check of answers reads.
        lost: how many tokens the prompt has lost at its beginning, and the completion after it at its end.
    """

    tokens: Tokens
    label: int
    candidates: tuple[Tokens, ...] = ()
    fields: tuple[tuple[str, object], ...] = ()
    lost: int = 0

    @property
    def rows(self) -> int:
        """Return the number of rows that the example takes in a forward pass at most (`candidates`)."""
        return len(self.candidates) or 1

    @property
    def width(self) -> int:
        """Return the number of tokens of the longest of these rows."""
        return len(self.tokens) + max((len(each) - 1 for each in self.candidates), default=0)

    @property
    def shared_width(self) -> int:
        """Return the number of tokens of a row with all candidates."""
        return len(self.tokens) + sum(len(each) - 1 for each in self.candidates)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Holds prompts padded on the right. No mask is needed: a causal model never looks to the right.

    Attributes:
        tokens: int64[N, T]. last: int64[N], position of each prompt's last token. labels: int64[N].
    """

    tokens: torch.Tensor
    last: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """Holds the data of a session: examples to train on and to evaluate on, and a padding token.

    Attributes:
        label_tokens: the token that sets each label word apart; empty where the examples have candidates.
        judge: says how good answers are, in a run that learns from rewards.
    """

    label_tokens: Tokens
    examples: tuple[Example, ...] = ()
    evaluation_examples: tuple[Example, ...] = ()
    pad: int = 0
    judge: AnswerJudge | None = None

    @property
    def draws_answers(self) -> bool:
        """Return whether messages are of answers that the model draws, and not of labels or texts that are given."""
        return self.judge is not None and self.judge.rule.answer is None


class PromptEncoder:
    """Turns JSON objects into examples. OperatorError when template or label words do not fit the tokenizer.

    Args:
        token_rows: for how many tokens the model has a row (`loading.token_rows`); None: for all.

    Attributes:
        words: tokens of each label word.
        lead, label_tokens: what all words begin with, and the next token of each; empty unless these differ (SPEC 5.5).
        joined: label words that the tokenizer joins with the end of the prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, task: TaskSpec, token_rows: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._token_rows = token_rows
        self._end = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        self._task = task
        self.template = TaskTemplate(task)
        self.rule = self.template.rule
        # The tokens that the tokenizer puts before a text (OPT: </s>; Llama: <s>; GPT-2: none), not after it.
        bare, whole = (tokenizer.encode("a", add_special_tokens=is_whole) for is_whole in (False, True))
        self._prefix = tuple(whole[: whole.index(bare[0])]) if bare and bare[0] in whole else ()
        self._context = _CONTEXT + self.template.end
        with loading.named_panics("the task"):
            self._context_tokens = self._encoded(self._context)
            self.words = self._label_words()
            self.joined = tuple(word for word in task.label_words if self._after_context(word) is None)
        self.lead, self.label_tokens = _set_apart(self.words)

    def encode(self, row: object, where: str) -> tuple[Example, ...]:
        """Return the examples in a decoded JSON value: one, or the pieces of a long plain text.

        OperatorError: a field is missing or malformed, the tokenizer fails, no token is left, or the model has no row
        for one; the error begins with ``where``.
        """
        texts = self.template.texts(row, where)
        with loading.named_panics(where):
            if self._task.kind is TaskKind.COMPLETION:
                examples = self._completions(texts, where)
            elif self.rule is not None:
                examples = (self._question(texts, self.rule.tokens, where),)
            else:
                words = () if self.label_tokens else self.words
                candidates = words or tuple(self._following(text) for text in texts.following)
                examples = (self._example(texts, candidates, where),)
        for example in examples:
            for tokens in (example.tokens, *example.candidates):
                self._check_rows(tokens, f"{where}: the text")
        return examples

    def _example(self, texts: RowTexts, candidates: tuple[Tokens, ...], where: str) -> Example:
        """Return the prompt with its candidates; a prompt too long for the longest candidate loses its beginning."""
        body = self._encoded(texts.prompt)
        longest = max(map(len, candidates), default=len(self.lead))
        room = self._task.max_tokens - len(self._prefix) - longest
        if room < bool(body):
            raise OperatorError(
                f"{where}: a choice or label word is {longest} tokens, with the prompt more than the run's "
                f"{self._task.max_tokens}; make the run with a larger --max-tokens"
            )
        tokens = (*self._prefix, *(body[-room:] if room else ()), *self.lead)
        shortest = min(map(len, candidates), default=1)
        if shortest < 1 or len(tokens) + shortest < 2:
            raise OperatorError(f"{where}: there is no token to predict: the prompt or a choice is empty")
        return Example(tokens=tokens, label=texts.label, candidates=candidates, lost=max(0, len(body) - room))

    def _question(self, texts: RowTexts, answer_tokens: int, where: str) -> Example:
        room = self._task.max_tokens - len(self._prefix) - answer_tokens
        body = self._encoded(texts.prompt)
        if room < 1 or not body:
            why = f"an answer of {answer_tokens} tokens leaves no room: take fewer --answer-tokens or more --max-tokens"
            why = "the prompt is empty" if room >= 1 else why
            raise OperatorError(f"{where}: {why}; a prompt and its answer may have {self._task.max_tokens} tokens")
        tokens = (*self._prefix, *body[-room:])
        answers = tuple((*self._following(text), *self._end)[:answer_tokens] for text in texts.following)
        if not all(answers):
            raise OperatorError(f"{where}: the right answer has no token")
        lost = max(0, len(body) - room)
        return Example(tokens=tokens, label=0, candidates=answers, fields=texts.fields, lost=lost)

    def _completions(self, texts: RowTexts, where: str) -> tuple[Example, ...]:
        """Return a prompt with its completion, or, without a prompt, the pieces of the text."""
        text, limit = self._following(texts.following[0]), self._task.max_tokens
        body = self._encoded(texts.prompt)
        spare = limit - len(self._prefix) - len(body)  # for what follows a whole prompt
        if self._task.template:
            # The completion loses its end if it is too long, but leaves the prompt's end up to half of the room.
            pieces = [text[: max(spare, limit - limit // 2)]]
        else:
            # Without a special prefix, a piece repeats the last token of the one before, which predicts the next.
            room, overlap = limit - len(self._prefix), 0 if self._prefix else 1
            starts = range(0, max(1, len(text) - overlap), room - overlap)
            pieces = [text[start : start + room] for start in starts]
        if not text or len(self._prefix) + len(body) + len(text) < 2:
            raise OperatorError(f"{where}: there is no token to predict: {self.template.wanted} must not be empty")
        lost = max(0, len(text) - spare) if self._task.template else 0
        prompts = [(*self._prefix, *body[max(0, len(piece) - spare) :]) for piece in pieces]
        pairs = zip(prompts, pieces, strict=True)
        return tuple(Example(tokens=prompt, label=0, candidates=(piece,), lost=lost) for prompt, piece in pairs)

    def _label_words(self) -> tuple[Tokens, ...]:
        """Return the tokens of each label word as they follow a prompt; SPEC 5.5. OperatorError."""
        words = self._task.label_words
        found = tuple(self._following(word) for word in words)
        for number, (word, tokens) in enumerate(zip(words, found, strict=True)):
            if not tokens:
                raise OperatorError(f"label word {word!r} has no token in this model's vocabulary; choose another")
            self._check_rows(tokens, f"label word {word!r}")
            if tokens in found[:number]:
                twin = words[found.index(tokens)]
                raise OperatorError(f"label words {twin!r} and {word!r} are the same tokens for this model")
        return found

    def _check_rows(self, tokens: Tokens, what: str) -> None:
        """Raise OperatorError where the model has no row for a token: tokens added later may have none."""
        if self._token_rows is None or max(tokens, default=0) < self._token_rows:
            return
        token = max(tokens)
        piece = self._tokenizer.convert_ids_to_tokens(token)
        raise OperatorError(
            f"{what} has {piece!r}, token {token} of the tokenizer, and the model has rows for {self._token_rows} "
            "tokens only: write it otherwise, or use a model with as many rows as its tokenizer has tokens"
        )

    def _following(self, text: str) -> Tokens:
        """Return the tokens of a text after a prompt; some tokenizers put a space before a text that stands alone."""
        found = self._after_context(text) if self._task.template else None
        return self._encoded(text) if found is None else found

    def _after_context(self, text: str) -> Tokens | None:
        """Return the tokens that the tokenizer adds for a text; None where it takes the context otherwise then."""
        whole, before = self._encoded(self._context + text), self._context_tokens
        return whole[len(before) :] if whole[: len(before)] == before else None

    def _encoded(self, text: str) -> Tokens:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _set_apart(words: Sequence[Tokens]) -> tuple[Tokens, Tokens]:
    """Return the tokens that all words begin with, and the next one of each; nothing unless these are all different."""
    columns = zip(*words, strict=False)  # the shortest word ends it
    lead = tuple(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))
    following = tuple(word[len(lead)] for word in words if len(word) > len(lead))
    return (lead, following) if len(set(following)) == len(words) else ((), ())


def read_task(
    tokenizer: PreTrainedTokenizerBase,
    task: TaskSpec,
    data: Rows | None,
    evaluation_data: Rows | None,
    judge: AnswerJudge | None = None,
    token_rows: int | None = None,
) -> TaskData:
    """Read and encode the rows of both (None: none). OperatorError names the file and the place of an error.

    ``judge``: of answers; None: the task's own, if it has one. ``token_rows``: as for `PromptEncoder`.
    """
    encoder = PromptEncoder(tokenizer, task, token_rows)
    pad = tokenizer.pad_token_id
    return TaskData(
        label_tokens=encoder.label_tokens,
        examples=read_examples(data, encoder, is_specified=bool(task.data_sha256)) if data else (),
        evaluation_examples=read_examples(evaluation_data, encoder) if evaluation_data else (),
        pad=pad if isinstance(pad, int) and (token_rows is None or pad < token_rows) else 0,  # no result depends on it
        judge=judge or AnswerJudge.of(tokenizer, task),
    )


def read_examples(data: Rows, encoder: PromptEncoder, *, is_specified: bool = False) -> tuple[Example, ...]:
    """Read all examples of a file of rows, or of rows. OperatorError names the file and the place of an error.

    ``is_specified``: the file is the run's public data, which have the form of SPEC 5.5 alone.
    """
    rows = row_files.rows_of(data, encoder.template, is_specified=is_specified)
    examples: list[Example] = []
    with counting("reading the data", "rows") as report:
        for number, (where, row) in enumerate(rows, start=1):
            examples += encoder.encode(row, where)
            report(number, 0)
    return tuple(examples)


def row_batch(examples: Sequence[Example], pad: int, device: torch.device) -> RowBatch:
    """Pad the prompts of ``examples`` to the longest of them."""
    lengths = [len(example.tokens) for example in examples]
    width = max(lengths)
    rows = [[*example.tokens, *([pad] * (width - length))] for example, length in zip(examples, lengths, strict=True)]
    return RowBatch(
        tokens=torch.tensor(rows, device=device),
        last=torch.tensor(lengths, device=device) - 1,
        labels=torch.tensor([example.label for example in examples], device=device),
    )
