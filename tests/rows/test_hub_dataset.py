"""Data sets of the hub by name: what is fetched, once, and what is said where that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import OperatorError
from sfnode.rows import hub_dataset
from sfnode.storage import example_files


class DatasetsError(Exception):
    """The base of what the library raises."""


class FakeLibrary(SimpleNamespace):
    """In place of `datasets`: one data set of two rows, with one configuration."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, str]] = []
        self.exceptions = SimpleNamespace(DatasetsError=DatasetsError)

    def load_dataset(self, name: str, part: str | None, *, split: str) -> list[dict[str, object]]:
        self.asked.append((name, part, split))
        if name == "torn/set":
            raise DatasetsError("An error occurred while generating the dataset")
        if name == "old/script":
            raise RuntimeError("Dataset scripts are no longer supported, but found script.py")
        if name != "nyu-mll/glue":
            raise FileNotFoundError(f"Dataset {name!r} doesn't exist on the Hub\nor cannot be accessed")
        return [{"sentence": "a fílm", "label": 1}, {"sentence": "b", "label": 0}]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    return fake


def test_hub_dataset__named_twice__is_fetched_once_as_json_lines(library: FakeLibrary, tmp_path: Path) -> None:
    path = example_files.locate("hub:nyu-mll/glue:sst2@validation")
    assert path == example_files.locate("hub:nyu-mll/glue:sst2@validation")
    assert library.asked == [("nyu-mll/glue", "sst2", "validation")]
    assert path.read_text("utf-8") == '{"sentence": "a fílm", "label": 1}\n{"sentence": "b", "label": 0}\n'
    assert [each.name for each in (tmp_path / ".sfnode" / "data").iterdir()] == [path.name]


def test_hub_dataset__without_configuration_or_split__is_that_for_training(library: FakeLibrary) -> None:
    hub_dataset.fetched("hub:nyu-mll/glue")
    assert library.asked == [("nyu-mll/glue", None, "train")]


def test_hub_dataset__splits_that_differ_in_signs_alone__are_files_of_their_own(library: FakeLibrary) -> None:
    """The rows held out, [:10%], were the rows trained on, [10%:]: both had one name in the cache."""
    splits = ("train[10%:]", "train[:10%]", "train[10%]", "train-10-")
    paths = {hub_dataset.fetched(f"hub:nyu-mll/glue:sst2@{split}") for split in splits}
    assert len(paths) == len(library.asked) == 4


def test_hub_dataset__folder_cannot_be_written__is_said_and_nothing_stays(library: FakeLibrary, tmp_path: Path) -> None:
    (tmp_path / ".sfnode").write_text("a file in its place")
    with pytest.raises(OperatorError, match=r"cannot write .*glue.*\.jsonl: "):
        hub_dataset.fetched("hub:nyu-mll/glue")
    assert [each.name for each in tmp_path.iterdir()] == [".sfnode"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("hub:nobody/nothing", "cannot be had from the hub: Dataset 'nobody/nothing' doesn't exist on the Hub$"),
        ("hub:torn/set", "cannot be had from the hub: An error occurred while generating the dataset$"),
        ("hub:old/script", "cannot be had from the hub: Dataset scripts are no longer supported, but found script.py$"),
        ("hub:../../etc/passwd", "write hub:OWNER/NAME, with :CONFIGURATION and @SPLIT"),
        ("hub:", "write hub:OWNER/NAME"),
    ],
)
def test_hub_dataset__cannot_be_had__is_said(library: FakeLibrary, reference: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        hub_dataset.fetched(reference)


def test_hub_dataset__library_is_missing__says_how_to_get_it(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(OperatorError, match=r"pip install 'sfnode\[data\]'"):
        hub_dataset.fetched("hub:nyu-mll/glue")
