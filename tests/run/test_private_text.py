"""An invitation comes from a file, standard input or a prompt; what is wrong with it is said with its source."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import OperatorError
from sfnode.run.secret_input import private_words


class Input:
    """A standard input: a terminal or not, with these bytes."""

    def __init__(self, data: bytes, *, is_terminal: bool) -> None:
        self.buffer = io.BytesIO(data)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_private_words__given_as_it_is__stays_as_it_is() -> None:
    assert private_words("sfnode:v1.a b", "the string") == ["sfnode:v1.a b"]


def test_private_words__file_and_standard_input__their_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xef\xbb\xbfsfnode:v1.abc\r\n  def\n"
    (tmp_path / "string").write_bytes(data)
    assert private_words(f"@{tmp_path / 'string'}", "the string") == ["sfnode:v1.abc", "def"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private_words("@~/string", "the string") == ["sfnode:v1.abc", "def"]
    monkeypatch.setattr("sys.stdin", Input(data, is_terminal=False))
    assert private_words("-", "the string") == ["sfnode:v1.abc", "def"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_private_words__file_that_a_redirection_of_powershell_wrote__is_read(encoding: str, tmp_path: Path) -> None:
    """It was "no text", though a table of rows in this encoding is read."""
    (tmp_path / "string").write_bytes("\ufeffsfnode:v1.abc\r\n".encode(encoding))
    assert private_words(f"@{tmp_path / 'string'}", "the string") == ["sfnode:v1.abc"]


def test_private_words__terminal__is_asked_without_showing_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return " invite:abc "

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin", Input(b"", is_terminal=True))
    assert private_words("-", "the invitation") == ["invite:abc"]
    assert asked == ["Paste the invitation, then press Enter (it is not shown): "]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b" \n", "is empty: the string was to be there"),
        (b"\xff\xfe\x00", "the string in .* is no text"),
        (b"\xff", "the string in .* is no text"),
        (b"a" * 70_000, "too long to be the string"),
        (None, "cannot read the string .*: No such file"),
    ],
)
def test_private_words__no_such_text__says_what_and_where(data: bytes | None, complaint: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "string").write_bytes(data)
    with pytest.raises(OperatorError, match=complaint):
        private_words(f"@{tmp_path / 'string'}", "the string")


def test_private_words__standard_input_read_twice__says_that_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = Input(b"invite:abc", is_terminal=False)
    monkeypatch.setattr("sys.stdin", given)
    assert private_words("-", "the string") == ["invite:abc"]
    with pytest.raises(OperatorError, match="standard input is empty: the invitation was to be there"):
        private_words("-", "the invitation")
