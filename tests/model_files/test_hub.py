"""What is fetched from a hub that answers, in which order, and what is said when it does not. The hub is a fake."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled, RepositoryNotFoundError

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files import hub
from sfnode.model_files.resolve import resolve_model
from sfnode.storage import disk
from tests.support.stored_models import COMMIT, HUB_ID, demo_tensors, pickled_folder, sharded_folder


@dataclass(frozen=True)
class Sibling:
    rfilename: str
    size: int | None


@dataclass(frozen=True)
class Info:
    sha: str
    siblings: list[Sibling] | None


class Hub:
    """A hub with one model, and the library that asks it."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self.snapshot = cache / "models--x" / "snapshots" / COMMIT
        self.snapshot.mkdir(parents=True)
        self.folder = folder
        self.fetched: list[str] = []
        self.fault: Exception | None = None

    def model_info(self, reference: str, *, revision: str, files_metadata: bool) -> Info:
        assert reference == HUB_ID and files_metadata and revision in ("main", COMMIT)
        if self.fault is not None:
            raise self.fault
        return Info(COMMIT, [Sibling(path.name, path.stat().st_size) for path in sorted(self.folder.iterdir())])

    def hf_hub_download(self, reference: str, name: str, *, revision: str) -> str:
        assert reference == HUB_ID and revision == COMMIT
        if not (self.folder / name).is_file():
            raise LocalEntryNotFoundError("the connection broke\nand more")
        self.fetched.append(name)
        return str(shutil.copy(self.folder / name, self.snapshot / name))

    def HfApi(self) -> Hub:  # noqa: N802  # the library's name
        return self


def serve(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path / "hub", folder)
    monkeypatch.setattr("huggingface_hub.HfApi", made.HfApi)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", made.hf_hub_download)
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    return made


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The embedded model on a hub."""
    return serve(Path(shutil.copytree(demo.model_folder(), tmp_path / "model")), tmp_path, monkeypatch)


def test_hub__answers__definition_comes_first_and_weights_last(served: Hub) -> None:
    """Where the weights are, the rest is too: so an interrupted download is never taken for a model."""
    (served.folder / "pytorch_model.bin").write_bytes(b"not wanted")
    (served.folder / "adapter_model.safetensors").write_bytes(b"not wanted")
    found = resolve_model(HUB_ID)
    assert (found.id, found.revision) == (HUB_ID, COMMIT)
    assert served.fetched[0] == "config.json" and served.fetched[-1] == "model.safetensors"
    assert "tokenizer.json" in served.fetched
    assert not {"pytorch_model.bin", "adapter_model.safetensors"} & {*served.fetched}


def test_hub__shards_of_pickles__are_those_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = serve(sharded_folder(tmp_path / "model", demo_tensors()), tmp_path, monkeypatch)
    (made.folder / "pytorch_model-of-another.bin").write_bytes(b"")
    found = hub.fetch_from_hub(HUB_ID, COMMIT, lambda *_progress: None)
    assert made.fetched[-3:] == [
        "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin",
    ]  # fmt: skip
    assert found.path.name == COMMIT


def test_hub__weights_are_larger_than_the_disk_has_room_for__are_refused_before_they_are_fetched(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_disk_bytes", lambda _folder: 1_000)
    with pytest.raises(OperatorError, match=r"MB of it are to be fetched, and the disk of .* has 0.0 MB free"):
        resolve_model(HUB_ID)
    assert "model.safetensors" not in served.fetched
    shutil.copy(served.folder / "model.safetensors", served.snapshot)
    assert resolve_model(HUB_ID).revision == COMMIT  # it is in the cache: nothing is to be fetched


def test_hub__file_cannot_be_fetched__operator_is_told_which(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    info = served.model_info(HUB_ID, revision="main", files_metadata=True)
    monkeypatch.setattr(served, "model_info", lambda *_arguments, **_options: info)
    (served.folder / "model.safetensors").unlink()
    with pytest.raises(
        OperatorError, match=r"model\.safetensors cannot be fetched from the hub: the connection broke;"
    ):
        resolve_model(HUB_ID)


def test_hub__no_transformers_model__is_refused(served: Hub) -> None:
    (served.folder / "config.json").unlink()
    with pytest.raises(OperatorError, match=r"it has no config\.json: it is not a transformers model"):
        resolve_model(HUB_ID)


def test_hub__no_such_model__is_refused_though_one_may_be_cached(served: Hub) -> None:
    answer = httpx2.Response(404, request=httpx2.Request("GET", "https://hub"))
    served.fault = RepositoryNotFoundError("Repository Not Found\nfor url", response=answer)
    with pytest.raises(OperatorError, match=r"has no such model or revision, .*: .*Repository Not Found") as caught:
        resolve_model(HUB_ID)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", [OfflineModeIsEnabled("offline"), httpx2.ConnectError("no route"), OSError("down")])
def test_hub__does_not_answer_and_nothing_is_cached__is_refused(fault: Exception, served: Hub) -> None:
    served.fault = fault
    with pytest.raises(
        OperatorError, match=rf"the hub cannot be reached and the whole model is not cached \({fault}\)"
    ):
        resolve_model(HUB_ID)


def test_hub__without_its_library__operator_is_told(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda _name: None)
    with pytest.raises(OperatorError, match="huggingface_hub is not installed, which fetches it"):
        resolve_model(HUB_ID)
    assert not served.fetched


def test_hub__fetches_weights__tells_how_many_bytes_of_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = serve(pickled_folder(tmp_path / "model", demo_tensors()), tmp_path, monkeypatch)
    monkeypatch.setattr("sfnode.model_files.watched_process._LOOK_S", 0.01)
    length = (made.folder / "pytorch_model.bin").stat().st_size
    told: list[tuple[str, int, int]] = []
    arrived = made.hf_hub_download

    def slow(reference: str, name: str, *, revision: str) -> str:
        path = arrived(reference, name, revision=revision)
        while name.endswith(".bin") and (not told or told[-1][1] < length):
            time.sleep(0.01)
        return path

    monkeypatch.setattr("huggingface_hub.hf_hub_download", slow)
    hub.fetch_from_hub(HUB_ID, "", lambda *progress: told.append(progress))
    assert told[-1] == (f"fetching {HUB_ID} from the hub", length, length)
