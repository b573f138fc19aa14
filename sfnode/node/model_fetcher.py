"""Fetches a model's files from the neighbours into this machine's cache, in pieces that are checked as they come."""

import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import trio

from protocol.limits import MODEL_PIECE_BYTES
from protocol.run import FileSpec, ModelSpec, piece_count
from protocol.wire import PeerId
from sfnode.model_files import FetchedModel, PartialFile, pieces
from sfnode.network import Pace, Wanted, sessions
from sfnode.node.piece_fetcher import PieceFetcher
from sfnode.node.step_rate import RecentRate
from sfnode.reporter import Reporter, described_bytes, format_rate
from sfnode.status import ModelProgress
from sfnode.storage import disk

RETRY_S = 30.0  # the disk is full or not writable: the operator may change that
_NO_ROOM = "the disk has no room for the model"
SILENCE_S = 15.0  # without a piece; then the progress says that no peer gives any
_RATE_S = 5.0  # over which the rate is measured
_LISTED_TOGETHER = 1 << 17  # pieces whose hashes are held at once: 4 MiB, for 128 GiB of files
_ASKED_TOGETHER = 1 << 14  # pieces on one board: 16 GiB, with 3 MB of bookkeeping

_T = TypeVar("_T")


class ModelFetcher:
    """Fetches files of one model. The node relays until it is done, and reports its progress."""

    def __init__(self, spec: ModelSpec, sources: sessions.NeighbourFiles, pace: Pace, reporter: Reporter) -> None:
        self._spec = spec
        self._reporter = reporter
        self._pieces = PieceFetcher(sources, pace)
        self._done_bytes = 0
        self._total_bytes = 0
        self._not_stored = ""  # what the progress says while the disk does not take the model
        self._rate = RecentRate(_RATE_S)
        self._told: set[str] = set()

    async def fetch(self, files: Sequence[FileSpec], folder: Path) -> None:
        """Fetch these files into ``folder``, with the run's bytes. Wait without limit for neighbours and for the disk.

        OperatorError: the manifest names a file that is no part of a model, or contradicts itself.
        """
        FetchedModel(self._spec).check_names()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while failure := await self._try(files, folder):
                text = f"the model cannot be stored in {folder}: {failure}. This is tried again and again"
                self._tell_once("model_not_stored", text, folder=str(folder), reason=failure)
                await trio.sleep(RETRY_S)
            nursery.cancel_scope.cancel()

    def look(self) -> ModelProgress:
        """Return the progress now, with the rate since the looks of the last seconds."""
        rate = self._rate.take(trio.current_time(), self._pieces.received_bytes) or 0.0
        givers, sizes = self._pieces.givers(), described_bytes(self._done_bytes, self._total_bytes)
        peers = f"from {givers} peer{'s' if givers != 1 else ''}: {sizes}, {format_rate(rate)}"
        text = f"fetching the model {peers}" if givers else f"waiting for a peer that has the model: {sizes}"
        return ModelProgress(
            stage="fetching",
            text=self._not_stored or text,
            done_bytes=self._done_bytes,
            total_bytes=self._total_bytes,
            givers=givers,
            bytes_per_s=round(rate),
        )

    async def _try(self, files: Sequence[FileSpec], folder: Path) -> str:
        """Try once to fetch the files; return why the disk does not take them, or "" if all are there."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            missing = [file for file in files if not await in_disk_thread(pieces.is_there, folder, file)]
            self._done_bytes, self._total_bytes = 0, sum(file.bytes for file in missing)
            lack = _lack_of_room(folder, missing)
            self._not_stored = _NO_ROOM if lack else ""
            if lack or not missing:
                return lack
            started_s, before = trio.current_time(), self._pieces.received_bytes
            text = f"fetching the model, {self._total_bytes / 1e6:.1f} MB, from the neighbours into {folder}"
            self._tell_once("model_fetching", text, folder=str(folder), bytes=self._total_bytes)
            for together in _listed_together(missing):
                await self._fetch_some(together, folder)
        except OSError as error:
            is_full = error.errno == errno.ENOSPC
            self._not_stored = _NO_ROOM if is_full else "the model cannot be stored"
            return "the disk is full. Free some space" if is_full else disk.describe_os_error(error)
        received, seconds = self._pieces.received_bytes - before, trio.current_time() - started_s
        text = f"the model is in {folder}: {received / 1e6:.1f} MB came from peers in {seconds:.1f} s"
        self._reporter.event("model_fetched", text, folder=str(folder), bytes=received, seconds=round(seconds, 3))
        return ""

    async def _fetch_some(self, files: Sequence[FileSpec], folder: Path) -> None:
        """Fetch files whose lists fit into memory together, one board of their pieces after the other."""
        lists = await self._fetch_lists(files)
        parts = [PartialFile(folder, file, hashes) for file, hashes in zip(files, lists, strict=True)]
        missing = [await in_disk_thread(part.missing) for part in parts]
        for part, numbers in zip(parts, missing, strict=True):
            self._done_bytes += part.file.bytes
            if numbers:  # the last one may be shorter than the others
                self._done_bytes -= (len(numbers) - 1) * MODEL_PIECE_BYTES + pieces.piece_bytes(part.file, numbers[-1])
        to_come = ((part, number) for part, numbers in zip(parts, missing, strict=True) for number in numbers)
        while jobs := list(islice(to_come, _ASKED_TOGETHER)):
            await self._fetch_pieces(jobs)
        for part in parts:
            await in_disk_thread(part.finish)

    async def _fetch_pieces(self, jobs: Sequence[tuple[PartialFile, int]]) -> None:
        """Fetch pieces, each given by its file and its number in the file."""

        async def keep(number: int, data: bytes, _giver: PeerId) -> None:
            part, piece = jobs[number]
            await trio.to_thread.run_sync(part.write, piece, data)
            self._done_bytes += len(data)

        def wanted(number: int) -> Wanted:
            part, piece = jobs[number]
            return Wanted.piece(part.hash_of(piece), pieces.piece_bytes(part.file, piece))

        await self._pieces.fetch(len(jobs), wanted, keep)

    async def _fetch_lists(self, files: Sequence[FileSpec]) -> list[bytes]:
        """Return the concatenated hashes of each file's pieces. A file of one piece is its own piece."""
        found = [bytes.fromhex(file.sha256) if piece_count(file) == 1 else b"" for file in files]
        long = [number for number, file in enumerate(files) if piece_count(file) > 1]

        async def keep(number: int, data: bytes, _giver: PeerId) -> None:
            found[long[number]] = data

        def wanted(number: int) -> Wanted:
            file = files[long[number]]
            return Wanted.piece(file.pieces, pieces.HASH_BYTES * piece_count(file))

        await self._pieces.fetch(len(long), wanted, keep)
        return found

    async def _watch(self) -> None:
        """Report it when no neighbour has given a piece for SILENCE_S, unless the disk took none."""
        while True:
            before, was_stored = self._pieces.received_bytes, not self._not_stored
            await trio.sleep(SILENCE_S)
            is_silent = self._pieces.received_bytes == before and not self._pieces.givers()
            if is_silent and was_stored and not self._not_stored:
                text = "no neighbour gives pieces of the model now; they are asked again until one does"
                self._tell_once("model_missing", f"{text}. A copy on this machine will do, too: --model FOLDER")

    def _tell_once(self, name: str, text: str, **fields: str | int) -> None:
        if text not in self._told:
            self._told.add(text)
            self._reporter.event(name, text, **fields)


def _lack_of_room(folder: Path, files: Sequence[FileSpec]) -> str:
    """Return by how much the disk is too small, and what to do; empty if it has room, or does not say."""
    needed, free = pieces.bytes_to_come(folder, files), disk.free_disk_bytes(folder)
    if free is None or needed <= free:
        return ""
    return (
        f"it needs {needed / 1e6:,.1f} MB more, and the disk has {free / 1e6:,.1f} MB free. Make room, let "
        "SFNODE_MODELS name a folder on a larger disk, or give a copy that is on this machine with --model FOLDER; "
        "until then nothing of it is fetched, and this node relays"
    )


def _listed_together(files: Sequence[FileSpec]) -> Iterator[list[FileSpec]]:
    """Group files in their order, with at most _LISTED_TOGETHER pieces; a file with more is a group of its own."""
    together: list[FileSpec] = []
    for file in files:
        if together and sum(map(piece_count, together)) + piece_count(file) > _LISTED_TOGETHER:
            yield together
            together = []
        together.append(file)
    if together:
        yield together


async def in_disk_thread(work: Callable[..., _T], *arguments: object) -> _T:
    """Run disk work in a thread, and abandon it when cancelled, so that a node that stops does not wait for it."""
    return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True)  # type: ignore[call-arg]  # old stubs
