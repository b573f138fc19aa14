"""make architectures: python -m tests.architectures [--only NAME] [--state FILE] [--write docs/models.md]"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from transformers.utils import logging

from tests.architectures import page
from tests.architectures.every import NAMES, verdicts
from tests.architectures.verdict import Verdict, verdict_of


@click.command()
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Look at this one.  [default: all]")
@click.option("--state", type=click.Path(path_type=Path), help="Keep what is found here; a further call goes on.")
@click.option("--at-once", default=2, show_default=True, help="Processes.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Renew the table of this page.")
def main(only: tuple[str, ...], state: Path | None, at_once: int, write: Path | None) -> None:
    """Build every causal language model of transformers in a tiny shape and check what sfnode does with it.

    Exit code 1 if something is wrong with one of them.
    """
    warnings.filterwarnings("ignore")
    quiet: Any = logging  # its functions carry no types
    quiet.set_verbosity_error()
    torch.set_num_threads(1)
    for name in ("llama", "mixtral", "bart", "mamba"):  # so that not every process imports what they share
        import_module(f"transformers.models.{name}.modeling_{name}")
    found = _kept(state)
    names = [name for name in only or NAMES if only or name not in found]
    for name, verdict in verdicts(names, verdict_of, at_once):
        found[name] = verdict
        click.echo(f"{name}: {verdict.kind} {verdict.reason or ', '.join(verdict.layers)}")
        if state is not None:
            state.write_text(json.dumps({each: asdict(of) for each, of in found.items()}, indent=1), "utf-8")
    click.echo(page.summary(found))
    if write is not None:
        write.write_text(page.fill(write.read_text("utf-8"), found, transformers.__version__), "utf-8")
    sys.exit(any(verdict.kind == "wrong" for verdict in found.values()))


def _kept(state: Path | None) -> dict[str, Verdict]:
    if state is None or not state.exists():
        return {}
    kept = json.loads(state.read_text("utf-8"))
    return {
        name: Verdict(**each | {"layers": tuple(each["layers"]), "whole": tuple(each["whole"])})
        for name, each in kept.items()
        if each["kind"] != "wrong"
    }


if __name__ == "__main__":
    main()
