"""`init` once more, after one that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfnode.cli import new_run
from tests.cli.test_bad_input import INIT
from tests.support.cli_calls import assert_teaches, call


def test_init__basis_of_a_killed_one_is_there__is_said_before_data_and_model_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.basis").touch()
    monkeypatch.setattr(new_run, "found_model", lambda *_: pytest.fail("the model was looked for"))
    said = call(*INIT, "--data", "embedded:reviews", "--out", tmp_path / "k.run")
    assert_teaches(said, f"{tmp_path / 'k.basis'} exists", "choose another --out, or remove it")


def test_init__killed_before_it_wrote_the_invitation__the_next_names_the_command_that_makes_one(tmp_path: Path) -> None:
    given = (*INIT, "--plain", "--out", tmp_path / "k.run")
    assert call(*given).code == 0
    assert "run invite" not in call(*given).stderr
    (tmp_path / "k.invite").unlink()
    invite = f"sfnode run invite --owner-key {tmp_path / 'k.key'} --run {tmp_path / 'k.run'}"
    assert_teaches(call(*given), "never overwritten", f"`{invite}` makes an invitation")
    assert call(*invite.split()[1:]).code == 0
    (tmp_path / "k.key").write_text("00" * 32)
    assert "run invite" not in call(*given).stderr
