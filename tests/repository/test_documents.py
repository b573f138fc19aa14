"""README and docs: the command line takes every sfnode command in them, every link and named file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.support.commands import commands_in, parse_command

DOCUMENTS = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("protocol/*.md")])
NAMES = [str(document.relative_to(REPOSITORY)) for document in DOCUMENTS]


def consoles(document: Path) -> list[str]:
    """What a reader is to type: the lines after `$` in console blocks, continuation lines included."""
    blocks = re.findall(r"```console\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    return ["\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)) for block in blocks]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_document__sfnode_commands__are_all_accepted(document: Path) -> None:
    for command in commands_in("\n".join(consoles(document))):
        parse_command(command)


def test_document__readme_and_quickstart__show_the_main_commands() -> None:
    shown = [REPOSITORY / "README.md", REPOSITORY / "docs" / "quickstart.md"]
    commands = {command[0] for document in shown for console in consoles(document) for command in commands_in(console)}
    assert {"init", "join", "testnet", "status", "log", "eval", "export", "id"} <= commands


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_document__links_to_files__all_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_document__make_targets__exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    targets = {target for text in DOCUMENTS for target in re.findall(r"`make ([a-z-]+)", text.read_text("utf-8"))}
    assert {"demo"} <= targets
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
