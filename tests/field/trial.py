"""Try inputs from the field: `init` makes a run of each, and a node makes a step of it. None may show a traceback.

Inputs are the files of the shared folder `field`, which is not part of the repository, and our own siblings of them.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import shutil
import signal
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Final
from unittest import mock

from benchmarks import places
from sfnode import demo
from tests.field import models
from tests.field.siblings import SIBLINGS, references
from tests.support.cli_calls import call

SHARED: Final = places.ROOT
_STORIES: Final = SHARED / "models" / "stories260K"
_LIMIT_S: Final = 300  # for one input; a crash loop would go on for ever
_TASK: Final = ("--template", "{sentence} It was", "--labels", " bad, good")
_SHORT: Final = ("--steps", 1, "--batch-rows", 8, "--admission", "open")
_NODE: Final = ("--listen", "/ip4/127.0.0.1/tcp/0", "--exit-when-finished", "--no-mdns", "--threads", 1)


_OPTIONS: Final[Mapping[str, tuple[object, ...]]] = {
    "label words: none": ("--labels", ","),
    "label words: one is empty": ("--labels", " bad,"),
    "label words: twice the same": ("--labels", " bad, bad"),
    "label words: the same first token": ("--labels", " good, goodness"),
    "label words: several tokens": ("--labels", " absolutely terrible, great"),
    "label words: pictures": ("--labels", " 👍, 👎"),
    "label words: three hundred": ("--labels", ",".join(f" {number}" for number in range(300))),
    "label words: in another encoding": ("--labels", " bad, caf\udce9"),
    "label words: a comma at the end": ("--labels", " bad, good,"),
    "label words: white space after one": ("--labels", " bad , good"),
    "template: a format": ("--template", "{sentence:>10} It was"),
    "template: no field": ("--template", "It was"),
    "template: another field": ("--template", "{text} It was"),
    "template: a brace is missing": ("--template", "{sentence It was"),
    "template: the label": ("--template", "{sentence} {label}"),
    "template: very long": ("--template", "{sentence} " + "x " * 100_000),
    "template: in another encoding": ("--template", "{sentence} caf\udce9"),
    "more tokens than the model takes": ("--max-tokens", 100_000),
    "no room for a token": ("--max-tokens", 1),
    "model: an address": ("--model", "https://huggingface.co/facebook/opt-125m"),
    "model: a name without its owner": ("--model", "gpt2"),
    "model: a file in its folder": ("--model", demo.model_folder() / "model.safetensors"),
    "model: a folder of folders": ("--model", demo.model_folder().parent),
    "model: a path of Windows": ("--model", "C:\\models\\opt"),
    "model: 5,000 letters": ("--model", "a" * 5_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What came of an input: "works", "refused" or "TRACEBACK", and the sentence that was said."""

    name: str
    verdict: str
    sentence: str = ""


def main() -> None:
    """Try every input, and print the table; the exit code is 1 where one shows a traceback or says nothing."""
    with tempfile.TemporaryDirectory(prefix="sfnode-field-") as name, mock.patch.dict(os.environ, HOME=name):
        met = []
        for attempt in chain(_siblings(Path(name)), _shared_inputs(Path(name))):
            met.append(attempt)
            say(row(attempt))
    works, refused = (sum(each.verdict == verdict for each in met) for verdict in ("works", "refused"))
    left = len(met) - works - refused
    say(f"{len(met)} inputs: {works} work, {refused} are refused in words, {left} end without words")
    sys.exit(left > 0)


def say(text: str) -> None:
    """Print a line at once: the next input may take a minute."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def row(met: Met) -> str:
    """The input's row of the table."""
    first, *more = textwrap.wrap(met.sentence, 100) or [""]
    return "\n".join([f"{met.name:<42} {met.verdict:<9} {first}".rstrip(), *(" " * 53 + line for line in more)])


def _siblings(folder: Path) -> Iterator[Met]:
    for sibling in SIBLINGS:
        place = _new(folder, f"of {sibling.name}")
        (place / sibling.name).write_bytes(sibling.data)
        yield _try_data(place, sibling.name, place / sibling.name)
    for name, data, _ in references(_new(folder, "references")):
        yield _try_data(_new(folder, f"with {name}"), name, data)
    yield _try_data(_new(folder, "with hub"), "hub:nobody/nothing", "hub:nobody/nothing")
    for name, options in _OPTIONS.items():
        yield try_run(_new(folder, name), name, "--data", demo.data_file(), "--plain", *options)
    beyond = folder / "beyond.jsonl"
    rows = demo.data_file().read_text("utf-8").splitlines()[:64]
    beyond.write_text("".join(line.replace('": "', f'": "{models.BEYOND} ', 1) + "\n" for line in rows), "utf-8")
    for name in models.MODELS:
        model = models.made_model(name, _new(folder, f"model {name}"))
        yield from _try_model(model, f"model: {name}", beyond if name == "token_without_a_row" else None)


def _shared_inputs(folder: Path) -> Iterator[Met]:
    field = SHARED / "field"
    if not field.is_dir():
        say(f"*** {field} is not there: ITS INPUTS WERE NOT TRIED, only those that are made here ***")
        return
    for data in sorted(field.glob("*.*")):
        if data.suffix not in (".py", ".md") and data.name != "configs.json":
            yield _try_data(_new(folder, f"in {data.name}"), data.name, data)
    yield from _shared_models(field, folder)
    with mock.patch.object(sys, "argv", ["label_tokens.py", str(_STORIES)]), redirect_stdout(StringIO()) as said:
        runpy.run_path(str(field / "label_tokens.py"))
    yield Met(name="label_tokens.py", verdict="works", sentence=said.getvalue().splitlines()[0])


def _shared_models(field: Path, folder: Path) -> Iterator[Met]:
    for name, fields in json.loads((field / "configs.json").read_text("utf-8")).items():
        if isinstance(fields, dict):
            model = shutil.copytree(_STORIES, _new(folder, f"config {name}") / "model")
            models.laid_over(fields)(model)
            yield from _try_model(model, f"configs.json: {name}")
    own, opt = SHARED / "models" / "opt-reviews-4m", SHARED / "data" / "tokenizer_opt"
    for name, tokenizer in (("phimoe", own), ("gpt_oss", own), ("short_vocabulary", opt)):
        model = _new(folder, f"tiny {name}") / "model"
        with mock.patch.object(sys, "argv", ["tiny_models.py", name, str(tokenizer), str(model)]):
            runpy.run_path(str(field / "tiny_models.py"))
        yield from _try_model(model, f"tiny_models.py: {name}")


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _try_model(model: Path, name: str, data: Path | None = None) -> Iterator[Met]:
    """Make a run that draws directions, and one with a basis, which looks into the model."""
    for what, plain in (("plain", ("--plain",)), ("dense", ())):
        given = ("--model", model, "--data", data or demo.data_file(), *plain)
        yield try_run(_new(model.parent, f"{name} {what}"), f"{name}, {what}", *given)


def _try_data(folder: Path, name: str, data: object) -> Met:
    """Take rows for public ones, and for a node's own to train on and to measure by: they are read alike."""
    public, private = (
        try_run(_new(folder, whose), name, "--data", data, "--plain", *more)
        for whose, more in (("public", ()), ("private", ("--private-data",)))
    )
    if public.verdict == private.verdict:
        return public
    return Met(name=name, verdict="DIFFERENT", sentence=f"public: {public}; private: {private}")


def try_run(folder: Path, name: str, *arguments: object) -> Met:
    """Make a run in ``folder`` from what these options of `init` name, and let a node make its one step."""
    model = () if "--model" in arguments else ("--model", f"embedded:{demo.MODEL_NAME}")
    run, node = folder / "it.run", folder / "node"
    try:
        with _limited():
            made = call("init", *model, *_TASK, *_SHORT, *arguments, "--out", run)
            if made.code:
                return Met(name=name, verdict="refused", sentence=made.error.replace(f"{folder.parent}/", ""))
            next_line = next(line for line in made.stdout.splitlines() if line.startswith("next "))
            command = shlex.split(next_line.removeprefix("next"))[1:-2]  # without --listen
            measured = command[command.index("--data") :][:2] if "--private-data" in arguments else []
            evaluation = ("--eval-data", measured[1], "--eval-every", 1) if measured else ()
            joined = call(*command, *evaluation, *_NODE, "--data-dir", node, "--json")
            if joined.code:
                return Met(name=name, verdict="DIFFERENT", sentence=f"init takes it, join does not: {joined.error}")
            if json.loads(call("log", "verify", node, "--json").stdout)["updates"] != 1:
                return Met(name=name, verdict="NO UPDATE", sentence=joined.stdout.splitlines()[-1])
    except Exception as error:
        return Met(name=name, verdict="TRACEBACK", sentence=traceback.format_exception_only(error)[-1].strip())
    said = [line for line in (made.stdout + made.stderr).splitlines() if line.startswith(("Warning: ", "data  "))]
    return Met(name=name, verdict="works", sentence=" ".join(said).replace(f"{folder}/", ""))


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError in the body after `_LIMIT_S`."""

    def give_up(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"it did not end in {_LIMIT_S} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
