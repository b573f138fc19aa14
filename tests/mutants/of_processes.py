"""Bugs of child processes: what they import, how long they are waited for, and what others see of a command line."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_PROGRAM, _PLANTED = "sfnode.children.child_program", "tests/children/test_planted_files.py::"

PROCESSES = (
    Mutant(
        name="current-folder-on-the-path",
        breaks="a child imports what lies in the current folder, such as the `numpy.py` of a cloned model",
        edits=(
            Edit(_PROGRAM, "Program.command", '"-P", ', ""),
            Edit(_PROGRAM, "Program.environment", '_SAFE: "1"', '_SAFE: ""'),
        ),
        detector=Tests(
            (_PLANTED + "test_child__planted_modules_in_the_current_folder__are_not_run[sfnode.training.devices]",)
        ),
    ),
    Mutant(
        name="empty-entry-is-the-current-folder",
        breaks="an empty entry of PYTHONPATH, which is the current folder, is handed to a child",
        edits=(Edit(_PROGRAM, "Program.environment", "if entry]", "if True]"),),
        detector=Tests(
            (
                "tests/children/test_program.py::test_environment__pythonpath__"
                "keeps_what_it_names_and_loses_what_means_the_current_folder",
            )
        ),
    ),
    Mutant(
        name="slow-worker-killed-each-time",
        breaks="a worker that does not come up in time is given no more time at its next start",
        edits=(Edit("sfnode.worker.supervisor", "supervise", "min(2 * patience, _PATIENCE_MAX)", "1"),),
        detector=Tests(
            (
                "tests/worker/test_supervisor.py::"
                "test_supervise__worker_that_needs_longer_each_time__is_given_twice_as_long_and_it_is_said",
            )
        ),
    ),
    Mutant(
        name="invitation-in-the-process-list",
        breaks="a string to join that was typed stays in the process list, where everybody can read it",
        edits=(Edit("sfnode.children.command_line_secrets", "cover", "kept = begins.start()", "kept = len(word)"),),
        detector=Tests(
            (
                "tests/children/test_command_line.py::"
                "test_cover__command_line__only_secrets_are_stars_and_no_length_changes",
            )
        ),
    ),
)
