"""The prompt in the model's own chat template: fields survive, the template's braces do not become fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import OperatorError
from sfnode.training.chat import chat_prompt
from sfnode.training.model.loading import load_tokenizer
from tests.support.tiny_models import tiny_opt, tiny_tokenizer

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}{% if add_generation_prompt %}<bot>"
CHAT += "{% endif %}"
BRACES = "{{ '{' }}role: {{ messages[0].role }}{{ '}' }} {{ messages[0].content }}{{ '{}' }}"

LOOP = "{% for _ in range(99999) %}"
DOUBLING = "{% set s = namespace(t='aaaaaaaa') %}{% for _ in range(60) %}{% set s.t = s.t ~ s.t %}{% endfor %}"


def folder_with(folder: Path, template: str | None, **special: Any) -> Path:
    """A folder with a model's configuration and the tiny tokenizer, which has this chat template."""
    tokenizer: Any = tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    tiny_opt().config.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | special
    path.write_text(json.dumps(config if template is None else config | {"chat_template": template}))
    return folder


@pytest.mark.parametrize("is_chat", [None, True])
def test_chat_prompt__model_with_a_template__puts_the_words_into_it(tmp_path: Path, is_chat: bool | None) -> None:
    folder = folder_with(tmp_path, CHAT)
    assert chat_prompt(load_tokenizer(folder), "How much is {a}?\n", is_chat) == "<user>How much is {a}?\n</><bot>"


def test_chat_prompt__template_in_a_file_of_its_own__is_taken(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, None)
    (folder / "chat_template.jinja").write_text(CHAT)
    assert chat_prompt(load_tokenizer(folder), "{a}", None) == "<user>{a}</><bot>"


def test_chat_prompt__braces_of_the_template__are_no_fields(tmp_path: Path) -> None:
    made = chat_prompt(load_tokenizer(folder_with(tmp_path, BRACES)), "{a} {{}}", None)
    assert made == "{{role: user}} {a} {{}}{{}}"
    assert made.format(a="x") == "{role: user} x {}{}"


@pytest.mark.parametrize(("template", "is_chat"), [(CHAT, False), (None, None), (None, False)])
def test_chat_prompt__not_wanted_or_none_there__is_the_prompt(
    tmp_path: Path, template: str | None, is_chat: bool | None
) -> None:
    assert chat_prompt(load_tokenizer(folder_with(tmp_path, template)), "{a} is", is_chat) == "{a} is"


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (None, "--chat: {folder} has no chat template"),
        ("{% for at in range(10**12) %}a{% endfor %}", "cannot be used: Range too big"),
        ("{{ 1 // 0 }}", "cannot be used: integer division or modulo by zero"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "cannot be used: maximum recursion depth exceeded"),
        ("{{ raise_exception('a system message is needed') }}", "cannot be used: a system message is needed"),
        ("{{ messages[0].content | dictsort }}", "cannot be used: 'str' object has no attribute 'items'"),
        ("{% if %}", "cannot be used: "),
        ("{% for _ in '1' %}" * 25 + "{% endfor %}" * 25, "cannot be used: too many statically nested blocks"),
        ("{{ messages[0].content }}{{ messages[0].content }}", "it puts the user's words in 2 places"),
        ("hello", "it puts the user's words in 0 places"),
    ],
)
def test_chat_prompt__wanted_and_unusable__teaches(tmp_path: Path, template: str | None, fault: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        chat_prompt(load_tokenizer(folder_with(tmp_path, template)), "{a}", True)
    assert fault.format(folder=tmp_path) in str(refusal.value)
    assert "Leave --chat out" in str(refusal.value)


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (f"{LOOP}{LOOP}{'{% endfor %}' * 2}", "it takes more than 1 s of computing, or too much memory"),
        ("{{ 9**(9**9) }}", "it takes more than 1 s of computing, or too much memory"),
        ("{% set a = 9 %}{{ a**(a**a) }}", "it takes more than 1 s of computing, or too much memory"),
        ("{{ 'a' * 10**11 }}", r"it takes .*too much memory"),
        ("{{ 'a' * 10**8 }}", r"it takes .*too much memory"),
        (DOUBLING, r"it takes .*too much memory"),
    ],
    ids=["loops", "a constant", "a power", "a very long text", "a long text", "doubling"],
)
def test_chat_prompt__endless_computing_or_memory__ends_with_a_sentence(
    template: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range of a template is bounded, their product was not: `init` stood still for hours. Later, an expression
    within one step of Python was not, nor was the memory that it took."""
    monkeypatch.setattr("sfnode.training.chat._SECONDS_MAX", 1)
    with pytest.raises(OperatorError, match=rf"cannot be used: {fault}\. Leave --chat out"):
        chat_prompt(load_tokenizer(folder_with(tmp_path, template)), "{a}", None)


def test_chat_prompt__no_place_for_a_file__is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(folder_with(tmp_path, CHAT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(OperatorError, match=r"cannot use the model's chat template: No such file.*TMPDIR says where"):
        chat_prompt(tokenizer, "{a}", None)
