"""`--web` where the install has no web server."""

from __future__ import annotations

import re
from importlib.machinery import ModuleSpec

import pytest

from protocol.errors import OperatorError
from sfnode import extras


def test_web__packages_are_missing__names_them_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == "hypercorn" else ModuleSpec(name, None)

    monkeypatch.setattr(extras, "find_spec", find)
    with pytest.raises(OperatorError, match=r"--web needs hypercorn, .*: run `.* -m pip install 'sfnode\[web\]'`"):
        extras.check_can_serve_page()


def test_extra__environment_without_pip__is_added_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """`uv tool install` makes environments that have no pip."""
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    assert re.fullmatch(r"run `uv pip install --python \S+ 'sfnode\[web\]'`", extras.how_to_add("web"))


def test_web__packages_are_there__is_no_error() -> None:
    extras.check_can_serve_page()
