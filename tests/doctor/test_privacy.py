"""Whether the doctor sees who else can enter a data directory. It only looks."""

from __future__ import annotations

from pathlib import Path

from sfnode.doctor.data_directory_check import check_privacy
from sfnode.doctor.findings import Verdict
from sfnode.storage.data_directory import DataDirectory


def test_doctor__folder_that_others_can_enter__is_a_warning_with_what_to_do(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    assert check_privacy(DataDirectory(directory)).verdict is Verdict.OK
    directory.mkdir(mode=0o700)
    assert check_privacy(DataDirectory(directory)).verdict is Verdict.OK
    directory.chmod(0o755)
    finding = check_privacy(DataDirectory(directory))
    assert finding.verdict is Verdict.WARNING and f"chmod 700 {directory}" in finding.advice
    assert directory.stat().st_mode & 0o777 == 0o755
