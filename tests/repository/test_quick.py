"""make quick runs the tests that stand on what changed, the closest first, and says what it leaves out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import REPOSITORY
from tests.repository import affected, durations, quick
from tests.repository.affected import affected_tests, within
from tests.repository.architecture import OURS, Module, parse_file, read_modules

PROCESS = "import pytest\n\n@pytest.mark.process\ndef test_join__killed__comes_back(): ...\n"
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
    "tests/repository/test_structure.py": "x = 1\n",
}
ALL_TESTS = {path for path in TREE if affected.is_test_file(path)}
STRUCTURE = "tests/repository/test_structure.py"


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
    assert [path for path in affected_tests([changed], tree(), {}) if path != STRUCTURE] == expected


def test_affected__face_or_what_it_runs_itself__are_all_who_pass_it() -> None:
    users = {"tests/node/test_daemon.py", "tests/protocol/test_ledger.py", "tests/protocol/test_roster.py", STRUCTURE}
    assert set(affected_tests(["protocol/ledger/__init__.py"], tree(), {})) == users
    assert set(affected_tests(["protocol/ledger/start.py"], tree(), {})) == users


def test_affected__conftest__are_all_tests() -> None:
    assert set(affected_tests(["tests/conftest.py"], tree(), {})) == ALL_TESTS


def test_affected__document__are_the_tests_that_read_it() -> None:
    assert affected_tests(["docs/run.md"], tree(), {}) == ["tests/repository/test_documents.py"]
    assert affected_tests(["LICENSE"], tree(), {}) == []


def test_affected__order__own_test_then_its_folder_then_fewer_imports_then_shorter() -> None:
    files = TREE | {
        "tests/a/test_far.py": "import tests.a.between\n",
        "tests/a/between.py": "import protocol.ledger.ledger\n",
        "tests/a/test_long.py": "import protocol.ledger.ledger\n",
        "tests/a/test_short.py": "import protocol.ledger.ledger\n",
        "tests/protocol/test_other.py": "import protocol.ledger.ledger\n",
    }
    order = affected_tests(["protocol/ledger/ledger.py"], tree(files), {"tests/a/test_long.py": 9.0, STRUCTURE: 99.0})
    names = [Path(path).stem.removeprefix("test_") for path in order]
    assert names == ["ledger", "other", "short", "long", "structure", "far", "daemon"]


def test_affected__whole_tree__reads_files_that_exist() -> None:
    readers = {path for _, paths in affected.READERS for path in paths}
    assert [path for path in sorted(readers) if not (REPOSITORY / path).is_file()] == []


def test_affected__ledger_of_the_whole_tree__its_own_tests_come_first() -> None:
    modules = read_modules(*OURS, "benchmarks", "tests")
    order = affected_tests(["protocol/ledger/ledger.py"], modules, {})
    assert order[0] == "tests/protocol/test_ledger.py"
    assert "tests/mutants/test_mutants.py" in order
    assert "tests/training/test_positions.py" not in order


def test_within__budget__leaves_out_what_does_not_fit_and_fills_up_with_what_does() -> None:
    selection = within(["a", "b", "c", "d"], {"a": 4.0, "b": 7.0, "c": 5.0}, 10.0)
    assert selection.taken == ("a", "c")
    assert selection.left == ("b", "d")
    assert (selection.seconds_taken, selection.seconds_left) == (9.0, 7.0 + affected.UNKNOWN_S)


def test_within__first_file_is_longer_than_the_budget__runs_all_the_same() -> None:
    assert within(["a", "b"], {"a": 40.0}, 10.0).taken == ("a",)


def test_by_kind__marked_files__are_process_tests_and_run_here_only_for_what_they_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = {
        durations.CORES: {"tests/test_both.py": 1.0},
        durations.PROCESSES: {"tests/test_both.py": 1.0, "tests/test_p.py": 9.0},
    }
    monkeypatch.setattr(quick, "stored_seconds", stored.__getitem__)
    files = {"tests/test_both.py": PROCESS, "tests/test_p.py": PROCESS, "tests/test_c.py": ""}
    files |= {"tests/test_new.py": PROCESS}
    computing, processes = quick.by_kind(list(files), tree(files))
    assert computing == ["tests/test_both.py", "tests/test_c.py", "tests/test_new.py"]
    assert processes == ["tests/test_both.py", "tests/test_p.py", "tests/test_new.py"]


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
    monkeypatch.setattr(quick, "read_modules", lambda *folders: tree(TREE | {"tests/processes/test_join.py": PROCESS}))
    found = ["tests/a/test_a.py", "tests/b/test_b.py", "tests/processes/test_join.py"]
    monkeypatch.setattr(quick, "affected_tests", lambda *_: found)
    stored = {durations.CORES: {}, durations.PROCESSES: {"tests/processes/test_join.py": 9.0}}
    monkeypatch.setattr(quick, "stored_seconds", stored.__getitem__)
    result = CliRunner().invoke(quick.main, ["--list", "--since", "HEAD", "--seconds", "1"])
    assert result.exit_code == 0
    said = result.output
    assert "1 test file that stand on it" in said
    assert "LEFT OUT for want of time: 1 test file" in said
    assert "pytest -m 'not process and not slow' -n 2 --dist worksteal tests/b/test_b.py\n" in said
    assert "pytest -m 'process and not slow' -n 2 --dist loadfile tests/processes/test_join.py\n" in said


def test_durations__report_of_pytest__gives_seconds_for_each_file(tmp_path: Path) -> None:
    cases = [("tests.a.test_x", "1.25"), ("tests.a.test_x", "0.5"), ("tests.test_y", "3")]
    lines = "".join(f'<testcase classname="{name}" name="t" time="{seconds}"/>' for name, seconds in cases)
    report, store = tmp_path / "report.xml", tmp_path / "store.json"
    report.write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    durations.store_seconds({durations.CORES: report}, store)
    assert durations.stored_seconds(durations.CORES, store) == {"tests/a/test_x.py": 1.8, "tests/test_y.py": 3.0}
    assert durations.stored_seconds(durations.PROCESSES, store) == {}
    assert durations.stored_seconds(durations.CORES, tmp_path / "none.json") == {}
