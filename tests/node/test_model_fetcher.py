"""A model's files from neighbours onto the disk: whole or not there, kept over a restart, and said in words."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from safetensors.numpy import save_file

from protocol.errors import OperatorError
from protocol.limits import MODEL_FILE_BYTES_MAX, MODEL_PIECE_BYTES
from protocol.run.manifest import TensorSpec
from protocol.run.model import FileSpec, ModelSpec, Sharing
from sfnode.model_files.model_cache import FetchedModel, link_weights
from sfnode.model_files.pieces import HASH_BYTES, PartialFile
from sfnode.network.sessions.bandwidth_limit import Pace
from sfnode.node import model_fetcher
from sfnode.node.model_fetcher import ModelFetcher
from sfnode.node.model_finder import ModelFinder
from sfnode.reporter import Reporter
from sfnode.run.node_options import SharingOptions
from sfnode.storage import disk
from tests.node.piece_givers import Givers, honest, leaving, stalling_after
from tests.node.split_models import (
    CONFIG,
    FILES,
    SIZE,
    TOKENIZER,
    WEIGHTS,
    all_pieces,
    made_up_model,
    pieces_of,
    write_model,
)
from tests.support.manifests import small_manifest
from tests.support.small_disk import remount, small_disk

PIECES = sum(len(pieces_of(data)) for data in FILES.values())
NEW_PART = f"{WEIGHTS}.part"


@dataclass
class Joiner:
    """A node without the model, and what it says."""

    givers: Givers
    spec: ModelSpec = field(default_factory=made_up_model)
    lines: io.StringIO = field(default_factory=io.StringIO)

    def fetcher(self) -> ModelFetcher:
        return ModelFetcher(self.spec, self.givers, Pace(0.0), Reporter(is_json=True, stream=self.lines))

    def finder(self, reference: str | None, *, tensors: Sequence[TensorSpec] = (), **options: Any) -> ModelFinder:
        manifest = replace(small_manifest(), model=self.spec, tensors=tuple(tensors))
        return ModelFinder(manifest, reference, SharingOptions(**options), Reporter(is_json=True, stream=self.lines))

    async def fetch(self, folder: Path, limit_s: float = 10.0) -> None:
        with trio.fail_after(limit_s):
            await self.fetcher().fetch(self.spec.files, folder)

    def events(self, name: str) -> list[dict[str, Any]]:
        said = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        return [event for event in said if event["event"] == name]


@pytest.fixture
def joiner() -> Joiner:
    return Joiner(Givers(all_pieces(), {"alice": honest(0.0), "bob": honest(0.0)}))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_fetcher, "RETRY_S", 0.1)
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "cache"))
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(60.0):
        while not condition():
            await trio.sleep(0.01)


# --- fetching


async def test_fetch__neighbours_have_it__every_file_is_there_and_nothing_else(tmp_path: Path, joiner: Joiner) -> None:
    await joiner.fetch(tmp_path / "model")
    assert contents(tmp_path / "model") == FILES
    (told,) = joiner.events("model_fetched")
    assert told["bytes"] == SIZE + HASH_BYTES * len(pieces_of(FILES[WEIGHTS])) == joiner.givers.given_bytes
    assert joiner.events("model_fetching")[0]["bytes"] == SIZE


async def test_fetch__all_is_there__nobody_is_asked(tmp_path: Path, joiner: Joiner) -> None:
    await joiner.fetch(write_model(tmp_path / "model"))
    assert not joiner.givers.asked and not joiner.events("model_fetched")


async def test_fetch__restarted_in_the_middle__only_what_is_missing_comes(tmp_path: Path, joiner: Joiner) -> None:
    joiner.givers.behaviours = {"alice": leaving(5, 0.0)}  # the list, two small files, two pieces of the weights
    with pytest.raises(trio.TooSlowError):
        await joiner.fetch(tmp_path / "model", limit_s=1.0)
    assert (tmp_path / "model" / NEW_PART).stat().st_size == len(FILES[WEIGHTS])
    joiner.givers.behaviours, joiner.givers.asked = {"bob": honest(0.0)}, []
    await joiner.fetch(tmp_path / "model")
    assert contents(tmp_path / "model") == FILES
    assert len(joiner.givers.asked) == 1 + PIECES - 4


async def test_fetch__a_piece_of_an_earlier_life_is_damaged__that_one_comes_again(
    tmp_path: Path, joiner: Joiner
) -> None:
    write_model(tmp_path / "model")
    damaged = bytearray(FILES[WEIGHTS])
    damaged[MODEL_PIECE_BYTES + 5] ^= 1
    (tmp_path / "model" / WEIGHTS).unlink()
    (tmp_path / "model" / NEW_PART).write_bytes(damaged)
    await joiner.fetch(tmp_path / "model")
    assert contents(tmp_path / "model") == FILES and len(joiner.givers.asked) == 2  # the list, and one piece


async def test_fetch__a_file_of_the_cache_is_damaged__comes_again(tmp_path: Path, joiner: Joiner) -> None:
    folder = write_model(tmp_path / "model")
    (folder / TOKENIZER).write_bytes(FILES[TOKENIZER][:-1] + b"!")
    await joiner.fetch(folder)
    assert contents(folder) == FILES and len(joiner.givers.asked) == 1


async def test_fetch__part_is_a_link_to_elsewhere__is_not_written_through(tmp_path: Path, joiner: Joiner) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "model" / NEW_PART).symlink_to(tmp_path / "mine")
    with pytest.raises(trio.TooSlowError):
        await joiner.fetch(tmp_path / "model", limit_s=1.0)
    assert (tmp_path / "mine").read_text() == "mine" and len(joiner.events("model_not_stored")) == 1


async def test_fetch__two_nodes_fill_one_cache_at_two_paces__both_have_it_and_neither_complains(
    tmp_path: Path, joiner: Joiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one found its NAME.part gone, and ended or waited half a minute, although the model was whole."""
    monkeypatch.setattr(model_fetcher, "RETRY_S", 1_000.0)
    slower = Joiner(Givers(all_pieces(), {"carol": honest(0.05)}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slower.fetch, tmp_path / "model")
        await until((tmp_path / "model" / NEW_PART).exists)
        await joiner.fetch(tmp_path / "model")
    assert contents(tmp_path / "model") == FILES
    assert not joiner.events("model_not_stored") and not slower.events("model_not_stored")


@pytest.mark.parametrize("is_whole", [True, False])
def test_finish__another_node_has_given_the_file_its_name__goes_on_only_where_it_is_whole(
    tmp_path: Path, is_whole: bool
) -> None:
    spec = made_up_model().weights[0]
    hashes = b"".join(hashlib.sha256(piece).digest() for piece in pieces_of(FILES[WEIGHTS]))
    part = PartialFile(tmp_path, spec, hashes)
    assert part.missing()
    (tmp_path / NEW_PART).unlink()
    (tmp_path / WEIGHTS).write_bytes(FILES[WEIGHTS] if is_whole else bytes(len(FILES[WEIGHTS])))
    part.write(0, pieces_of(FILES[WEIGHTS])[0])
    with nullcontext() if is_whole else pytest.raises(FileNotFoundError):
        part.finish()
    assert list(part.missing()) == ([] if is_whole else list(range(len(pieces_of(FILES[WEIGHTS])))))


def test_link_weights__another_node_has_linked_them__leaves_its_links_and_mends_wrong_ones(tmp_path: Path) -> None:
    source, own = write_model(tmp_path / "source"), tmp_path / "own"
    own.mkdir()
    link_weights(source, own)
    before = (own / WEIGHTS).lstat().st_ctime_ns
    link_weights(source, own)
    assert (own / WEIGHTS).lstat().st_ctime_ns == before
    (own / WEIGHTS).unlink()
    (own / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    link_weights(source, own)
    assert (own / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert {path.name for path in own.iterdir()} == {WEIGHTS}


async def test_fetch__folder_cannot_be_made__is_said_once_and_tried_again(tmp_path: Path, joiner: Joiner) -> None:
    folder = tmp_path / "file" / "model"
    folder.parent.write_text("in the way")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(joiner.fetch, folder)
        await until(lambda: joiner.events("model_not_stored"))
        await trio.sleep(0.3)
        folder.parent.unlink()
    assert contents(folder) == FILES and len(joiner.events("model_not_stored")) == 1


async def test_fetch__disk_is_full__is_said_and_goes_on_once_there_is_room(
    tmp_path: Path, joiner: Joiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while it said that no neighbour gave pieces."""
    monkeypatch.setattr(disk, "free_disk_bytes", lambda _folder: None)  # somebody else fills it later
    monkeypatch.setattr(model_fetcher, "RETRY_S", 0.4)
    monkeypatch.setattr(model_fetcher, "SILENCE_S", 0.1)
    fetcher = joiner.fetcher()
    with small_disk(tmp_path / "disk", kilobytes=2_000) as small:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.fetch, joiner.spec.files, small / "model")
            await until(lambda: joiner.events("model_not_stored"))
            await trio.sleep(0.3)
            assert fetcher.look().text == "the disk has no room for the model" and not joiner.events("model_missing")
            remount(small, "size=8m")
        assert contents(small / "model") == FILES and "has no room" not in fetcher.look().text
    (told,) = joiner.events("model_not_stored")
    assert told["reason"] == "the disk is full. Free some space"


async def test_fetch__nobody_has_it__is_said_once_and_the_progress_says_it(
    tmp_path: Path, joiner: Joiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_fetcher, "SILENCE_S", 0.05)
    joiner.givers.behaviours = {}
    fetcher = joiner.fetcher()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.fetch, joiner.spec.files, tmp_path / "model")
        await until(lambda: joiner.events("model_missing"))
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    assert len(joiner.events("model_missing")) == 1
    assert fetcher.look().text.startswith("waiting for a peer that has the model: 0 of 3 MB")


async def test_fetch__pieces_come__progress_says_from_how_many_and_how_fast(tmp_path: Path, joiner: Joiner) -> None:
    joiner.givers.behaviours = {"alice": stalling_after(2), "bob": stalling_after(2)}
    fetcher = joiner.fetcher()
    fetcher.look()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.fetch, joiner.spec.files, tmp_path / "model")
        await until(lambda: fetcher.look().givers == 2 and fetcher.look().done_bytes)
        found = fetcher.look()
        nursery.cancel_scope.cancel()
    assert found.text.startswith("fetching the model from 2 peers: ") and found.bytes_per_s > 0
    assert 0 < found.done_bytes < found.total_bytes == SIZE


@pytest.mark.parametrize("name", ["run.py", "model.bin", "modeling_opt.py", "model.safetensors.part"])
async def test_fetch__manifest_names_what_is_no_part_of_a_model__is_refused(
    tmp_path: Path, joiner: Joiner, name: str
) -> None:
    for changed in (
        replace(joiner.spec, weights=(replace(joiner.spec.weights[0], name=name),)),
        replace(joiner.spec, tokenizer=(replace(joiner.spec.tokenizer[0], name=name),)),
        replace(joiner.spec, config=replace(joiner.spec.config, name=name)),
    ):
        joiner.spec = changed
        with pytest.raises(OperatorError, match="which this sfnode does not fetch"):
            await joiner.fetch(tmp_path / "model")
    assert not joiner.givers.asked and not (tmp_path / "model").exists()


async def test_fetch__manifest_contradicts_itself__is_refused_and_nothing_is_left(
    tmp_path: Path, joiner: Joiner
) -> None:
    joiner.spec = replace(joiner.spec, weights=(replace(joiner.spec.weights[0], sha256="0" * 64),))
    with pytest.raises(ExceptionGroup) as caught:
        await joiner.fetch(tmp_path / "model")
    assert caught.group_contains(OperatorError, match="although each of its pieces is")
    assert not (tmp_path / "model" / WEIGHTS).exists() and not (tmp_path / "model" / NEW_PART).exists()


async def test_fetch__more_than_the_disk_has_room_for__is_said_with_both_sizes_and_nobody_is_asked(
    tmp_path: Path, joiner: Joiner
) -> None:
    with small_disk(tmp_path / "disk", kilobytes=2_000) as disk:
        fetcher = joiner.fetcher()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.fetch, joiner.spec.files, disk / "model")
            await until(lambda: joiner.events("model_not_stored"))
            (told,) = joiner.events("model_not_stored")
            assert "needs 3.2 MB more, and the disk has 2.0 MB free" in told["reason"]
            assert "SFNODE_MODELS" in told["reason"] and "--model FOLDER" in told["reason"]
            assert fetcher.look().text == "the disk has no room for the model"
            assert not joiner.givers.asked and not (disk / "model" / NEW_PART).exists()
            remount(disk, "size=8m")
        assert contents(disk / "model") == FILES


async def test_fetch__part_is_on_the_disk_already__room_is_needed_for_the_rest_alone(
    tmp_path: Path, joiner: Joiner
) -> None:
    with small_disk(tmp_path / "disk", kilobytes=4_000) as disk:
        (disk / "model").mkdir()
        (disk / "model" / NEW_PART).write_bytes(FILES[WEIGHTS][: 2 * MODEL_PIECE_BYTES])
        await joiner.fetch(disk / "model")
        assert contents(disk / "model") == FILES


def _endless(name: str) -> tuple[FileSpec, bytes]:
    """The largest file that a manifest may name, of zeros, and the list of its pieces."""
    listed = hashlib.sha256(bytes(MODEL_PIECE_BYTES)).digest() * (MODEL_FILE_BYTES_MAX // MODEL_PIECE_BYTES)
    pieces = hashlib.sha256(listed).hexdigest()
    return FileSpec(name=name, bytes=MODEL_FILE_BYTES_MAX, sha256="0" * 64, pieces=pieces), listed


async def _asked(joiner: Joiner, times: int) -> None:
    with trio.move_on_after(120.0):
        while len(joiner.givers.asked) < times:
            await trio.sleep(0.05)


@pytest.mark.slow  # lists of 32 MiB are hashed
async def test_fetch__three_files_of_the_largest_size__memory_stays_within_what_is_stated(
    tmp_path: Path, joiner: Joiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_disk_bytes", lambda _folder: 4 * MODEL_FILE_BYTES_MAX)
    large = [_endless(f"model-{number}.safetensors") for number in range(3)]
    joiner.spec = replace(joiner.spec, weights=tuple(file for file, _ in large))
    joiner.givers.held |= {file.pieces: listed for file, listed in large}
    fetcher = joiner.fetcher()
    tracemalloc.start()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.fetch, joiner.spec.files, tmp_path / "model")
            await _asked(joiner, 12)  # small files, the list, and pieces that nobody has
            nursery.cancel_scope.cancel()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(joiner.givers.asked) >= 12
    assert peak < 16 << 20  # beside one list, which is the givers' here; all jobs at once took 710 MB


# --- where the model comes from


async def test_finder__model_of_nobody_but_the_neighbours__comes_into_the_cache(cache: Path, joiner: Joiner) -> None:
    folder = await joiner.finder(None).find(joiner.givers)
    assert folder == FetchedModel(joiner.spec).folder and folder.parent == cache and contents(folder) == FILES


async def test_finder__folder_has_all__is_taken_as_it_is(tmp_path: Path, joiner: Joiner) -> None:
    folder = write_model(tmp_path / "model")
    assert await joiner.finder(str(folder)).find(joiner.givers) == folder
    assert not joiner.givers.asked


@pytest.mark.parametrize("fault", ["missing", "another", "surplus"])
async def test_finder__folder_has_the_weights_and_other_small_files__these_come_and_the_weights_are_linked(
    tmp_path: Path, joiner: Joiner, fault: str
) -> None:
    folder = write_model(tmp_path / "model")
    (folder / {"missing": CONFIG, "another": TOKENIZER, "surplus": "vocab.txt"}[fault]).write_text("{}")
    if fault == "missing":
        (folder / CONFIG).unlink()
    found = await joiner.finder(str(folder)).find(joiner.givers)
    assert found == FetchedModel(joiner.spec).folder_around(folder) and contents(found) == FILES
    assert (found / WEIGHTS).is_symlink() and len(joiner.givers.asked) == 2
    assert len(joiner.events("model_incomplete")) == 1


async def test_finder__folder_of_another_model__is_called_so(tmp_path: Path, joiner: Joiner) -> None:
    """A fault once: its weights were loaded with the run's small files, and the mixture was called damaged."""
    folder, missing = write_model(tmp_path / "other"), replace(small_manifest().tensors[0], name="layers.0.q.weight")
    (folder / CONFIG).write_text("{}")
    save_file({"layers.0.fc1.weight": np.zeros((24, 16))}, folder / WEIGHTS)
    with pytest.raises(OperatorError, match=f"{folder} holds another model .*sfnode config unset model"):
        await joiner.finder(str(folder), tensors=(missing,)).find(joiner.givers)
    assert not joiner.givers.asked


async def test_finder__hub_does_not_give_it__neighbours_do_and_the_next_time_nobody_is_asked(joiner: Joiner) -> None:
    joiner.spec = made_up_model(model_id="nobody/has-this")
    assert contents(await joiner.finder("nobody/has-this").find(joiner.givers)) == FILES
    assert len(joiner.events("model_not_found")) == 1
    joiner.givers.asked = []
    await joiner.finder("nobody/has-this").find(joiner.givers)
    assert not joiner.givers.asked and len(joiner.events("model_not_found")) == 1


@pytest.mark.parametrize(("sharing", "no_fetch_model"), [(Sharing.NONE, False), (Sharing.PEERS, True)])
async def test_finder__owner_or_operator_forbids_it__nobody_is_asked(
    tmp_path: Path, joiner: Joiner, sharing: Sharing, no_fetch_model: bool
) -> None:
    joiner.spec = made_up_model(sharing, "nobody/has-this")
    with pytest.raises(OperatorError, match="nobody/has-this"):
        await joiner.finder("nobody/has-this", no_fetch_model=no_fetch_model).find(joiner.givers)
    folder = write_model(tmp_path / "model")
    (folder / CONFIG).unlink()
    assert await joiner.finder(str(folder), no_fetch_model=no_fetch_model).find(joiner.givers) == folder
    assert not joiner.givers.asked
