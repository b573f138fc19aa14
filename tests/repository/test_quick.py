"""make quick runs the tests that stand on what changed, the closest first, and says what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import REPOSITORY
from tests.repository import affected, quick
from tests.repository.affected import affected_tests
from tests.repository.architecture import OURS, Module, parse_file, read_modules

TREE = {
    "protocol/__init__.py": "",
    "protocol/ledger/__init__.py": (
        '__all__ = ["Ledger", "Roster"]\n'
        "from protocol.ledger.ledger import Ledger\n"
        "from protocol.ledger.roster import Roster\n"
        "from protocol.ledger.start import provide\n"
    ),
    "protocol/ledger/ledger.py": "x = 1\n",
    "protocol/ledger/roster.py": "x = 1\n",
    "protocol/ledger/start.py": "x = 1\n",
    "sfnode/node/daemon.py": "from protocol.ledger import Ledger\n",
    "sfnode/worker_process.py": "x = 1\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "x = 1\n",
    "tests/support/worker.py": 'COMMAND = ["-m", "sfnode.worker_process"]\n',
    "tests/node/test_daemon.py": "from sfnode.node.daemon import run\n",
    "tests/protocol/test_ledger.py": "from protocol.ledger.ledger import Ledger\n",
    "tests/protocol/test_roster.py": "def test_x():\n    from protocol.ledger import Roster\n",
    "tests/protocol/test_wire.py": "x = 1\n",
    "tests/worker/test_client.py": 'pytest_plugins = ["tests.support.worker"]\n',
    "tests/repository/test_documents.py": "x = 1\n",
    "tests/repository/test_inside_rooms.py": "x = 1\n",
    "tests/repository/test_structure.py": "x = 1\n",
}
ALL_TESTS = {path for path in TREE if affected.is_test_file(path)}
READ_ALL = ["tests/repository/test_inside_rooms.py", "tests/repository/test_structure.py"]


def tree(files: dict[str, str] = TREE) -> tuple[Module, ...]:
    return tuple(parse_file(source, Path(path)) for path, source in sorted(files.items()))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("protocol/ledger/ledger.py", ["tests/protocol/test_ledger.py", "tests/node/test_daemon.py"]),
        ("protocol/ledger/roster.py", ["tests/protocol/test_roster.py"]),
        ("sfnode/node/daemon.py", ["tests/node/test_daemon.py"]),
        ("sfnode/worker_process.py", ["tests/worker/test_client.py"]),
        ("tests/support/worker.py", ["tests/worker/test_client.py"]),
        ("tests/protocol/test_wire.py", ["tests/protocol/test_wire.py"]),
    ],
    ids=["through a face", "inside a function", "directly", "named in a string", "support", "a test"],
)
def test_affected__changed_module__are_the_tests_that_reach_it(changed: str, expected: list[str]) -> None:
    assert [path for path in affected_tests([changed], tree()) if path not in READ_ALL] == expected


def test_affected__face_or_what_it_runs_itself__are_all_who_pass_it() -> None:
    users = {f"tests/{name}.py" for name in ("node/test_daemon", "protocol/test_ledger", "protocol/test_roster")}
    users.update(READ_ALL)
    assert set(affected_tests(["protocol/ledger/__init__.py"], tree())) == users
    assert set(affected_tests(["protocol/ledger/start.py"], tree())) == users


def test_affected__conftest__are_all_tests() -> None:
    assert set(affected_tests(["tests/conftest.py"], tree())) == ALL_TESTS


def test_affected__document__are_the_tests_that_read_it() -> None:
    assert affected_tests(["docs/run.md"], tree()) == ["tests/repository/test_documents.py"]
    assert affected_tests(["LICENSE"], tree()) == []


@pytest.mark.parametrize("text", ["page.js", "static/page.js", "sfnode/page/static/page.js"])
def test_affected__file_that_a_test_or_a_module_names__are_that_test_and_those_of_the_module(text: str) -> None:
    files = {
        "sfnode/page/assets.py": f'PAGE = "{text}"\n',
        "tests/page/test_assets.py": "import sfnode.page.assets\n",
        "tests/repository/test_deploy.py": f'PAGE = "{text}"\n',
        "tests/repository/test_other.py": '"""Of page.js; static."""\n',
    }
    selected = affected_tests(["sfnode/page/static/page.js"], tree(files))
    assert sorted(selected) == ["tests/page/test_assets.py", "tests/repository/test_deploy.py"]


def test_affected__module_that_is_imported_when_it_is_asked_for__are_the_tests_of_who_asks() -> None:
    files = {
        "tests/fuzz/catalogue.py": 'ENTRIES = ("reward_rules",)\n',
        "tests/fuzz/reward_rules.py": "import tests.vectors.check_cases\n",
        "tests/fuzz/test_corpus.py": "import tests.fuzz.catalogue\n",
        "tests/vectors/check_cases.py": "x = 1\n",
    }
    assert affected_tests(["tests/vectors/check_cases.py"], tree(files)) == ["tests/fuzz/test_corpus.py"]


def test_affected__order__own_test_then_readers_then_its_folder_then_fewer_imports() -> None:
    files = TREE | {
        "tests/a/test_far.py": "import tests.a.between\n",
        "tests/a/between.py": "import protocol.ledger.ledger\n",
        "tests/a/test_near.py": "import protocol.ledger.ledger\n",
        "tests/protocol/test_other.py": "import protocol.ledger.ledger\n",
    }
    order = affected_tests(["protocol/ledger/ledger.py"], tree(files))
    names = [Path(path).stem.removeprefix("test_") for path in order]
    assert names == ["ledger", "inside_rooms", "structure", "other", "near", "far", "daemon"]


def test_affected__whole_tree__reads_files_that_exist() -> None:
    readers = {path for _, paths in affected.READERS for path in paths}
    assert [path for path in sorted(readers) if not (REPOSITORY / path).is_file()] == []


def test_affected__ledger_of_the_whole_tree__its_own_tests_come_first() -> None:
    modules = read_modules(*OURS, "benchmarks", "tests")
    order = affected_tests(["protocol/ledger/ledger.py"], modules)
    assert order[0] == "tests/protocol/test_ledger.py" and "tests/repository/test_inside_rooms.py" in order[:4]
    assert "tests/mutants/test_mutants.py" in order
    assert "tests/training/test_positions.py" not in order
    assert "tests/cli/test_run_show.py" in affected_tests(["sfnode/cli/show.py"], modules)


@pytest.mark.parametrize(("folder", "name"), [("reviews", "train.jsonl"), ("tiny-opt", "config.json")])
def test_affected__file_of_the_demo__are_the_tests_of_the_demo(folder: str, name: str) -> None:
    """Tests make files of these names themselves: 200 to 300 test files were selected."""
    found = affected_tests([f"sfnode/demo/{folder}/{name}"], read_modules(*OURS, "benchmarks", "tests"))
    assert found == [f"tests/demo/test_demo_{about}.py" for about in ("data", "model", "training")]


def test_changed_files__committed_edited_and_new__are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(quick, "REPOSITORY", tmp_path)
    git("init", "--quiet", "--initial-branch=main")
    for name in ("kept", "edited"):
        (tmp_path / name).write_text("1")
    git("add", "--all")
    git("commit", "--quiet", "--message=one")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    (tmp_path / "committed").write_text("1")
    git("add", "--all")
    git("commit", "--quiet", "--message=two")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("1")
    assert quick.changed_files(quick.branch_point()) == ["committed", "edited", "new"]
    git("update-ref", "-d", "refs/remotes/origin/main")
    assert quick.changed_files(quick.branch_point()) == ["edited", "new"]


def test_command__list__says_what_would_run_and_how_to_run_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "changed_files", lambda base: ["protocol/ledger/ledger.py"])
    result = CliRunner().invoke(quick.main, ["--list", "--since", "HEAD"])
    assert result.exit_code == 0
    said = result.output.splitlines()
    assert said[0].startswith("==> 1 files differ, ") and said[1] == "tests/protocol/test_ledger.py"
    assert said[-2] == "  LEFT OUT, tests of real processes. To run them:"
    assert "pytest -m 'process and not slow' -n 2 --dist loadfile " in said[-1]
    assert "tests/processes/test_kill_restart.py" in said[-1] and "tests/protocol/test_ledger.py" not in said[-1]


@pytest.mark.parametrize(("tests", "code"), [("true", 0), ("exit 5", 0), ("exit 1", 1)])
def test_command__tests_pass_or_are_all_of_another_kind_or_fail__exit_code_says_so(
    tests: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest").write_text(f"#!/bin/sh\n{tests}\n")
    (tmp_path / "pytest").chmod(0o755)
    monkeypatch.setattr(quick, "BIN", str(tmp_path))
    monkeypatch.setattr(quick, "changed_files", lambda base: ["protocol/ledger/ledger.py"])
    assert CliRunner().invoke(quick.main, ["--since", "HEAD"]).exit_code == code


def test_seconds__are_over__tests_are_skipped_and_counted() -> None:
    command = [sys.executable, "-m", "pytest", "-rs", "--seconds", "0", "tests/repository/test_spec.py"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " skipped" in done.stdout and " passed" not in done.stdout
    assert "LEFT OUT for want of time" in done.stdout
