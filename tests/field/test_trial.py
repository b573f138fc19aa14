"""The trial's own verdicts; the inputs themselves: `make field`, and `tests/rows` for the files of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.field import trial
from tests.field.siblings import SIBLINGS
from tests.field.trial import Met
from tests.support.cli_calls import Outcome

WORKS = Met(name="a", verdict="works")
REFUSED = Met(name="b", verdict="refused", sentence="b is a folder")
BROKEN = Met(name="c", verdict="TRACEBACK", sentence="IndexError: index out of range")


def end_of(met: list[Met], monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(trial, "_siblings", lambda _folder: iter(met))
    monkeypatch.setattr(trial, "_shared_inputs", lambda _folder: iter(()))
    with pytest.raises(SystemExit) as ended:
        trial.main()
    return ended.value.code


def test_field__works_or_is_refused_in_words__passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not end_of([WORKS, REFUSED], monkeypatch)
    assert capsys.readouterr().out.endswith("2 inputs: 1 work, 1 are refused in words, 0 end without words\n")


@pytest.mark.parametrize("other", ["TRACEBACK", "DIFFERENT", "NO UPDATE"])
def test_field__one_ends_without_words__fails(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of([WORKS, Met(name="c", verdict=other)], monkeypatch)


def test_field__shared_folder_is_absent__is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "SHARED", tmp_path)
    assert list(trial._shared_inputs(tmp_path)) == []
    assert f"{tmp_path / 'field'} is not there: ITS INPUTS WERE NOT TRIED" in capsys.readouterr().out


def test_field__command_raises__is_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_arguments: object) -> Outcome:
        raise IndexError("index out of range")

    monkeypatch.setattr(trial, "call", raising)
    met = trial.try_run(tmp_path, "c", "--data", "c.csv")
    assert met == BROKEN and "c" in trial.row(met) and "IndexError" in trial.row(met)


def test_siblings__there_are__at_least_twenty_of_each_end() -> None:
    works = [sibling for sibling in SIBLINGS if isinstance(sibling.expected, int)]
    assert min(len(works), len(SIBLINGS) - len(works)) >= 20
    assert len({sibling.name for sibling in SIBLINGS}) == len(SIBLINGS)
