"""README, docs and the other pages: the command line takes every sfnode command in them, every link, file and test
that they name exists, and a line of prose is short enough to read and to compare."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path, PurePath

import pytest

from sfnode.run import default_directory
from sfnode.storage import DataDirectory
from tests import REPOSITORY
from tests.support.commands import commands_in, parse_command

FOLDERS = ("docs", "protocol", "sfnode")
DOCUMENTS = sorted(
    [*REPOSITORY.glob("*.md"), *(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.md"))]
)
NAMES = [str(document.relative_to(REPOSITORY)) for document in DOCUMENTS]
COLUMNS_MAX = 120
# Files that documents name and that are not ours: of the library whose faults docs/libp2p.md lists, and the reader's.
OF_OTHERS = frozenset("basic_host.py libp2p/__init__.py evaluate.py".split())


def consoles(document: Path) -> list[str]:
    """What a reader is to type: the lines after `$` in console blocks, continuation lines included."""
    blocks = re.findall(r"```console\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    return ["\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)) for block in blocks]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_document__sfnode_commands__are_all_accepted(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_directory, "only_node", lambda: DataDirectory(tmp_path))  # as where a reader has joined
    for command in commands_in("\n".join(consoles(document))):
        parse_command(command)


def test_document__readme_and_quickstart__show_the_main_commands() -> None:
    shown = [REPOSITORY / "README.md", REPOSITORY / "docs" / "quickstart.md", REPOSITORY / "docs" / "guide.md"]
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


def wide_lines(text: str) -> list[int]:
    """Numbers of the lines over COLUMNS_MAX that could be shorter: not of tables, code, a bare link or formula."""
    wide, is_code = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        is_whole = re.fullmatch(r"\s*(?:<?https?://\S+|!?\[[^\]]*\]\(\S+\)|`[^`]+`)[.:,;]?", line) is not None
        if len(line) > COLUMNS_MAX and not (is_code or is_whole or line.startswith("|")):
            wide.append(number)
    return wide


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_document__lines_of_prose__fit_the_columns(document: Path) -> None:
    assert wide_lines(document.read_text("utf-8")) == []


def test_wide_lines__long_ones_of_every_kind__only_prose_and_lists_are_named() -> None:
    long = "a word " * 20
    kept = [f"| {long} |", "```", long, "```", f"https://example.org/{'x' * 120}", f"[{long}](a.md)", f"`{long}`"]
    assert wide_lines("\n".join(["short", long, *kept, f"* {long}", f"see `{long}` there"])) == [2, 10, 11]


@cache
def sources() -> dict[str, str]:
    """Text of every Python file of the repository by its path."""
    folders = ("benchmarks", "deploy", "docs", "protocol", "sfnode", "tests")
    files = [*REPOSITORY.glob("*.py"), *(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))]
    return {str(path.relative_to(REPOSITORY)): path.read_text("utf-8") for path in files}


def unknown_names(text: str, known: dict[str, str]) -> list[str]:
    """Python files, and tests by file or function, that code spans of ``text`` name and ``known`` does not have."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    words = [word for span in spans for word in re.findall(r"[\w./*]*\w", span)]
    files = {word for word in words if word.endswith(".py")} - OF_OTHERS
    tests = {word for word in words if re.fullmatch(r"test_[a-z0-9_]+", word)}
    stems = {Path(path).stem for path in known}
    absent = [name for name in files if not any(PurePath(path).match(name) for path in known)]
    absent += [name for name in tests - stems if not any(f"def {name}(" in source for source in known.values())]
    return sorted(absent)


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_document__python_files_and_tests_that_it_names__exist(document: Path) -> None:
    text = re.sub(r"`\w+\.py:\d+`", "", document.read_text("utf-8"))  # a line of libp2p's wheel
    assert unknown_names(text, sources()) == []


def test_unknown_names__stale_file_and_test__are_named() -> None:
    known = {"protocol/wire.py": "", "tests/protocol/test_wire.py": "def test_wire__a__b() -> None: ..."}
    fine = "`protocol/wire.py`, `wire.py`, `tests/protocol/test_*.py`, `test_wire`, `test_wire__a__b`, old.py"
    assert unknown_names(fine, known) == []
    assert unknown_names("`rations.py` and `test_wire__a__c`, `network/wire.py`", known) == [
        "network/wire.py", "rations.py", "test_wire__a__c",
    ]  # fmt: skip


def messages_of(source: str) -> list[str]:
    """Every text in a program as a person sees it, with `…` for what is put in when it runs."""
    return [text for node in ast.walk(ast.parse(source)) if (text := _text_of(node))]


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) or "…" for part in node.values)
    return ""


def unsaid(headings: list[str], texts: list[str]) -> list[str]:
    """The messages that no text of the program is: their parts, between `…`, stand in one text, one after the other."""
    patterns = {each: re.compile(".*".join(map(re.escape, each.split("…"))), re.DOTALL) for each in headings}
    return [each for each, pattern in patterns.items() if not any(map(pattern.search, texts))]


def test_troubleshooting__messages_that_it_explains__are_what_the_program_says() -> None:
    headings = re.findall(r"^### `(.+)`$", (REPOSITORY / "docs/troubleshooting.md").read_text("utf-8"), re.MULTILINE)
    assert len(headings) > 20
    texts = [text for path, source in sources().items() if path.startswith("sfnode/") for text in messages_of(source)]
    assert unsaid(headings, texts) == []


def test_unsaid__message_that_was_reworded__is_named() -> None:
    texts = messages_of('raise Error(f"{path} is full: free {count} MB")')
    assert unsaid(["… is full: free … MB"], texts) == []
    assert unsaid(["… is full: empty … MB"], texts) == ["… is full: empty … MB"]
