"""Make a signed manifest from an owner's options, for every command that makes a run. Imports torch lazily."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.ledger import EnvelopeCodec
from protocol.limits import DIRECTIONS_MAX
from protocol.run import SignedManifest, TaskKind, TaskSpec
from protocol.schema import has_half_pair
from sfnode.extras import check_can_train
from sfnode.model_files import ModelFolder, model_folder
from sfnode.reporter import counting, printable
from sfnode.rewards import Checker
from sfnode.rows import RowTexts, TaskTemplate, row_files, row_slips
from sfnode.run import RunDraft, RunOptions, found_model, rule_in_words
from sfnode.storage import KeyFile, disk, example_files

if TYPE_CHECKING:  # imports torch
    from sfnode.training.calibration import FoundBasis
    from sfnode.training.shared_model import SharedModel
    from sfnode.training.task import TaskData

_ANSWER_SHOWN, _WORDS_SHOWN = 60, 4  # characters of an answer, label words that few rows have, or none
_FORM_TOKENS = 20  # above 16, at which SPEC 5.7 draws otherwise
_ASKED = 3  # prompts
_UNEVEN = 4  # times the rows of another label: what that costs is in docs/tasks.md
_FEW_ANSWERS = 16  # that could be labels
_LABEL = re.compile(r"\s*[^\s,][^,\n]{0,31}")  # commas divide them
PlacedTexts = Sequence[tuple[str, RowTexts]]  # where each row stands, and its texts


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """Holds a signed run and the by-products of making it.

    Attributes:
        left_out: tensors of the model that no choice of --trainable could train, with the reasons.
        words: its label words in words; empty without any.
        data: what names the rows that it was made from, as --data does; None where no data were given.
        basis: file of its basis, and found: how it was made; None where directions are drawn.
    """

    signed: SignedManifest
    left_out: Mapping[str, str]
    data: str | None
    words: str = ""
    basis: Path | None = None
    found: "FoundBasis | None" = None

    @property
    def record_bytes(self) -> int:
        return EnvelopeCodec(self.signed.manifest).record_bytes


def make_run(options: RunOptions, key_path: Path, *, default_name: str, basis_out: Path) -> NewRun:
    """Sign a new run with the key in ``key_path``; make the key if it is missing.

    Where the run can have a dense core, its basis is written to ``basis_out``. OperatorError, raised before a basis is
    made: an option is wrong.
    """
    check_can_train()
    from sfnode.api.local_model import finish_run, why_no_basis  # imports torch
    from sfnode.training.described_model import describe_run
    from sfnode.training.devices import move_to
    from sfnode.training.model import loading
    from sfnode.training.shared_model import SharedModel

    data = "" if options.data.is_private else options.data.data or ""
    for option, name in (("--model", options.model), ("--data", data)):
        if has_half_pair(Path(name).name):
            raise OperatorError(f"{option} {name}: the name is not UTF-8, in which a manifest is written: rename it")
    options.checked_settings()  # a slip in them or in the data shows before a model is fetched
    if os.path.lexists(basis_out) and (options.reward.rule_text or options.dense_batch_rows):  # rewards need a basis
        raise OperatorError(f"{basis_out} exists: choose another --out, or remove it")
    options, rows = _with_readable_data(options, basis_out)
    options = _with_right_answer(options, rows)
    folder = found_model(options.model, options.revision)
    if options.revision and not folder.revision:
        raise OperatorError(f"--revision {options.revision}: {options.model} has none; the hub and packages have them")
    if (adapter := folder.path / model_folder.ADAPTER_FILE).is_file():
        text = f"Warning: {adapter} belongs to an adapter beside the model, which the run leaves out: to train on it"
        click.echo(printable(f"{text}, merge it with PEFT's merge_and_unload, and give what that makes"), err=True)
    task = task_of(options, folder, [texts for _, texts in rows])
    if task.kind is TaskKind.REWARD and not options.dense_batch_rows:
        raise OperatorError(_why_no_rewards(options))
    described = describe_run(folder, options.trainable, task, options.data.named(options.task), options.sharing)
    _warn_of_examples(task, described.data, loading.positions_of(folder.path))
    named, signer = replace(options, name=options.name or default_name), Signer(KeyFile(key_path).made_seed())
    draft = RunDraft(named, signer, task, described.spec, described.tensors)
    if options.dense_batch_rows:
        move_to("auto", described.model)
    shared = SharedModel(described.model)
    if task.kind is TaskKind.REWARD and not task.draws_answers:
        _say_alone(shared, described.data)
    with counting("making a basis from some of the data", "forward passes or more") as report:
        made, found = finish_run(draft, shared, described.data, report)
    if options.wants_basis and found is None:
        why = why_no_basis(described.data, options)
        click.echo(f"Warning: {why}: the run measures slopes along random directions, as with --plain", err=True)
    if options.settings is not None and options.data.data is not None:  # the settings may have texts of their own
        row_files.checked_texts(example_files.locate(options.data.data), TaskTemplate(made.signed.manifest.task))
    if found and found.drawn:
        _say_start(found, task)
    if found:
        assert isinstance(made.basis, bytes)
        disk.write_new(basis_out, [made.basis])
    return NewRun(
        signed=made.signed,
        left_out=described.left_out,
        data=options.data.named(options.task),
        words=described.words,
        basis=basis_out if found else None,
        found=found,
    )


def _with_readable_data(options: RunOptions, basis_out: Path) -> tuple[RunOptions, PlacedTexts]:
    """Look at every row. Return the options with public data that all nodes can read, and the rows where a rule is.

    Where the data are no JSON lines, or have words for labels, a copy that is written next to ``basis_out`` takes their
    place. OperatorError: a row lacks a field, or the file cannot be read.
    """
    named, template = options.data.named(options.task), options.texts.row_template
    if named is None:
        return options, []
    path = example_files.locate(named)
    rows, slips = row_slips.looked_at(path, template)
    for slip in slips:
        click.echo(printable(f"Warning: {slip}"), err=True)
    is_known = options.data.is_private or named.startswith(example_files.EMBEDDED)
    if is_known or (lines := row_files.public_rows(path, template)) is None:
        return options, rows
    copy = basis_out.with_suffix(".jsonl")
    if copy.exists() and copy.samefile(path):
        raise OperatorError(f"{copy} is your --data, and a copy of its rows would get that name: choose another --out")
    if os.path.lexists(copy) and not (copy.is_file() and copy.read_bytes() == lines):
        raise OperatorError(
            f"{copy} exists, perhaps from an earlier try: the rows of {path} go there in the form that every node "
            "reads. Remove it, or choose another --out"
        )
    if not copy.exists():
        disk.write_new(copy, [lines])
    return replace(options, data=replace(options.data, data=str(copy))), rows


def _with_right_answer(options: RunOptions, rows: PlacedTexts) -> RunOptions:
    """Return the options with the right answer that rows name, and say what is learnt. OperatorError: a wrong rule."""
    given = options.reward
    if given.rule_text is None or not rows:
        return options
    found = given.with_right_answer(dict(row.fields) for _, row in rows)
    if (answer := found.rule.answer) is None:
        return replace(options, reward=found)
    texts = [row.filled(answer) for _, row in rows]
    if found.answer and given.answer is None:
        text = f"Note: each row names a right answer, {found.answer}: nodes learn it, and the rule checks what the"
        more = "model then writes. In training, `chance` is how likely a token of it is. With --answer ''"
        more += " nodes learn from answers that the model draws"
        more += "" if given.samples is None else f", and only then --samples {given.samples} counts"
        words, is_field = sorted({*texts}), answer.literals == ("", "")
        if is_field and 1 < len(words) <= _FEW_ANSWERS and all(map(_LABEL.fullmatch, words)):
            prompt = "" if options.task.template else "--template '{prompt}' "
            labels = f"call the field `label`, and give {prompt}--labels {','.join(words)!r} in place of --reward"
            more += f". Labels teach so few answers from fewer rows still: {labels}"
        click.echo(printable(f"{text} {more}"), err=True)
    checker = Checker(found.rule)
    got = [checker.reward(text, True, dict(row.fields)) for text, (_, row) in zip(texts, rows, strict=True)]
    if wrong := [at for at, reward in enumerate(got) if reward < 1.0]:
        where, row = rows[at := wrong[0]]
        what = f"{where} has {texts[at][:_ANSWER_SHOWN]!r}, which gets {got[at]:.2f}"
        asked = rule_in_words(found.rule).rpartition("; rows name")[0]
        for name, value in row.fields:
            asked = asked.replace(f"{{{name}}}", str(value)[:_ANSWER_SHOWN])
        text = f"Warning: {len(wrong)} of {len(rows)} rows name an answer that the rule does not call right"
        click.echo(printable(f"{text}: {what}, and the rule gives {asked}. Change --answer or the rule"), err=True)
    if empty := sum(not text.strip() for text in texts):
        text = f"Warning: {empty} of {len(rows)} rows name an empty right answer, and nodes learn to write nothing"
        click.echo(f"{text} there: complete these rows, or leave them out", err=True)
    return replace(options, reward=found)


def _warn_of_examples(task: TaskSpec, data: "TaskData", positions: int | None) -> None:
    """Warn of labels with few rows or none, words alike, and rows that are cut; the model takes ``positions``."""
    examples, room = data.examples, task.max_tokens - (data.judge.rule.tokens if data.judge else 0)
    rows, words = Counter(example.label for example in examples), list(map(repr, task.label_words))
    if examples and (missing := [word for number, word in enumerate(words) if not rows[number]]):
        text = f"no row has the label {', '.join(missing[:_WORDS_SHOWN])}: nothing teaches it"
        if not rows[0] and TaskTemplate(task).counts_from_0:
            text += ". If the labels are numbers that begin with 1, write the words themselves: numbers count from 0"
        click.echo(printable(f"Warning: {text}"), err=True)
    ((often, most),) = rows.most_common(1) or [(0, 0)]
    if few := [f"{rows[at]:,} have {word}" for at, word in enumerate(words) if 0 < _UNEVEN * rows[at] <= most]:
        shown = ", ".join([f"{most:,} have {words[often]}", *few[:_WORDS_SHOWN]])
        text = f"labels are uneven: of {len(examples):,} rows {shown}. A run learns that first, and rare ones hardly"
        more = "if these matter, add rows of them, or leave others out, until none has over twice the rows of another"
        click.echo(printable(f"Warning: {text}: {more}"), err=True)
    if task.label_words and not data.label_tokens:
        text = "no one token sets the label words apart, so a run learns less from each row"
        click.echo(f"Warning: {text}: take words that all differ at one place, such as the first", err=True)
    stops, most = (data.judge.stops, data.judge.rule.tokens) if data.judge else ((), 0)
    if data.judge and not stops:
        text = "this model has no token that ends a text, so its answers pass no check but `contains`"
        click.echo(f"Warning: {text}: take a model for chats", err=True)
    answers = [answer for each in examples for answer in each.candidates if stops and len(answer) == most]
    if cut := sum(answer[-1] not in stops for answer in answers):
        text = f"{cut} right answers have more tokens than an answer may have, and lose their end"
        click.echo(f"Warning: {text}: a model that learns them does not end. Give more --answer-tokens", err=True)
    if cut := sum(each.lost > 0 for each in examples):
        is_text, lost = task.kind is TaskKind.COMPLETION, "the beginning of the prompt or the end of the completion"
        what, lost = ("rows", lost) if is_text else ("prompts", "their beginning")
        text = f"{cut} of {len(examples)} {what} are cut to {room} tokens and lose {lost}"
        longest = task.max_tokens + max(each.lost for each in examples)
        tokens = min(8 * -(-longest // 8), positions or 2 * longest)
        more = f"give --max-tokens {tokens}" if tokens >= longest else f"the model takes {tokens}: shorten them"
        click.echo(f"Warning: {text}: {more}, or leave these {what} out", err=True)


def _say_alone(shared: "SharedModel", data: "TaskData") -> None:
    """Say what the model alone answers to some prompts whose rows name the right answer: a prompt may mislead it."""
    from sfnode.training.reward_estimate import judge_of, likeliest_answers  # imports torch

    judge, some = judge_of(data), data.examples[:: max(1, len(data.examples) // _ASKED)][:_ASKED]
    for example, (text, reward) in zip(some, likeliest_answers(shared, data, some), strict=True):
        said = f"the model alone answers {text[:_ANSWER_SHOWN]!r} and gets {reward:.2f}"
        right = judge.text(example.candidates[0]).strip()[:_ANSWER_SHOWN]
        click.echo(printable(f"{said}, where {right!r} is right: {judge.asked(example.tokens)}"), err=True)


def _say_start(found: "FoundBasis", task: TaskSpec) -> None:
    """Say what the answers get that the model has drawn, with the best and the worst; warn if all get the same."""
    drawn = sorted(found.drawn, key=lambda each: each[1])
    _, rewards, ended = zip(*drawn, strict=True)
    shown = " and ".join(f"{text[:_ANSWER_SHOWN]!r} gets {reward:.2f}" for text, reward, _ in (drawn[-1], drawn[0]))
    got = f"mean reward {sum(rewards) / len(drawn):.2f}, {sum(map(bool, rewards))} get something, "
    others = "" if 2 * sum(ended) >= len(ended) else ", and the others pass no check but `contains`"
    got += f"{sum(reward >= 1.0 for reward in rewards)} fully right, {sum(ended)} have ended{others}"
    click.echo(printable(f"the model alone draws {len(drawn)} answers: {got}; {shown}"), err=True)
    if found.is_cut_form:
        more = f"--answer-tokens {_FORM_TOKENS}, or a rule with as many tokens: unlikely ones are then not drawn"
        click.echo(f"Note: the best answers are forms of several tokens, which are learnt sooner with {more}", err=True)
    if (best := rewards[-1]) > rewards[0]:
        return
    help_ = "let the rule ask for more" if best >= 1.0 else "let the rule reward what only some of them have"
    if best == 0.0 and not any(ended) and '"contains":' not in task.completion:
        help_ = "none has ended, and such an answer passes no check but `contains`: give more --answer-tokens"
    elif best == 0.0:
        help_ = (
            "look whether the rule rewards an answer that you call right (a row's field is in braces, a number has no "
            "other words); give more --answer-tokens if answers have not ended; show in the prompt what you want; "
            "reward parts of an answer by a sum; or take a stronger model"
        )
    click.echo(f"Warning: each answer got {best:.2f}, and equal rewards teach nothing: {help_}", err=True)


def _why_no_rewards(options: RunOptions) -> str:
    """Return which option excludes a dense core, by which alone rewards are learnt."""
    why = (
        "rewards are learnt by a dense core: leave out --settings and the options on directions and their number, "
        f"and take at most {DIRECTIONS_MAX:,} answers in a step"
    )
    if options.data.named(options.task) is None:
        why = "--data is missing: a basis for learning from rewards is made from some prompts. Give a file of them"
    elif options.is_plain:
        why = "--plain: slopes along drawn directions cannot be measured by rewards of sampled answers. Leave it out"
    return why


def task_of(options: RunOptions, folder: ModelFolder, looked_at: Sequence[RowTexts] = ()) -> TaskSpec:
    """Return the task for a manifest; warn about odd label words. OperatorError: texts or data do not make a task."""
    from sfnode.training.chat import chat_prompt  # imports torch
    from sfnode.training.described_model import default_max_tokens
    from sfnode.training.model import loading

    task, data, rows, texts = options.task, options.data, options.rows, options.texts
    if texts.is_reward:
        tokenizer = loading.load_tokenizer(folder.path)
        given = replace(texts, template=chat_prompt(tokenizer, texts.template, options.reward.is_chat))
        if (texts := given.spaced(looked_at)) != given:
            what = f"--answer {json.loads(texts.completion)['answer']!r} after {texts.template[-20:]!r}"
            click.echo(printable(f"Note: taken as {what}: with the space before a word"), err=True)
    if options.texts.template.endswith(" ") and texts.spelled.template.endswith(" "):  # not a chat's
        text = f"Warning: the prompt ends with a space, in {texts.template[-20:]!r}, and tokenizers have words with the"
        click.echo(printable(f"{text} space before them: leave it out; a completion may begin with it"), err=True)
    if texts != texts.spelled:
        texts = texts.spelled
        what = f"--labels {','.join(texts.label_words)!r} after {texts.template[-20:]!r}"
        click.echo(printable(f"Note: taken as {what}: with the space before a word"), err=True)
    named = example_files.data_spec(data.named(task), is_private=data.is_private)
    tokens = task.max_tokens or default_max_tokens(folder)
    return texts.spec(task.objective, max_tokens=tokens, batch_rows=rows, data=named)
