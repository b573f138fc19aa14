"""Finds a node's model before it can train: on this machine, at the hub, in a package, or at its neighbours."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import trio

from protocol.errors import OperatorError
from protocol.run import Manifest
from sfnode.children.async_child import printed_lines, running
from sfnode.children.child_program import Program
from sfnode.model_files import FetchedModel, OnProgress, find_model_folder, verify
from sfnode.network import Pace, sessions
from sfnode.node.model_fetcher import ModelFetcher
from sfnode.reporter import Reporter, described_bytes
from sfnode.run import SharingOptions, may_fetch
from sfnode.status import ModelProgress
from sfnode.storage import disk

_RESOLVING = "sfnode.model_files.resolve_process"


class ModelFinder:
    """Finds the folder that the worker loads. The node relays until it is found."""

    def __init__(self, manifest: Manifest, reference: str | None, options: SharingOptions, reporter: Reporter) -> None:
        """Take the ``reference`` for `resolve_model`; None if only neighbours can have the model."""
        self._manifest = manifest
        self._reference = reference
        self._reporter = reporter
        self._may_fetch = may_fetch(manifest, options)
        self._pace = Pace(options.fetch_rate << 20)
        self._fetcher: ModelFetcher | None = None
        self._finding: ModelProgress | None = None

    def look(self) -> ModelProgress | None:
        """Return the progress of the search; None if none is running."""
        return self._finding if self._fetcher is None else self._fetcher.look()

    async def find(self, sources: sessions.NeighbourFiles) -> Path:
        """Return a folder with the model's files, judged by their names: the worker checks their content.

        OperatorError: the model is nowhere, may not be fetched, or the folder holds weights of another one.
        """
        model = FetchedModel(self._manifest.model)
        folder = await self._find_here(model)
        if folder is None:
            return await self._fetch(sources, model.folder, is_whole=True)
        reason = await trio.to_thread.run_sync(model.fault_of_definition, folder) if self._may_fetch else ""
        if not reason:
            return folder
        verify.check_shapes(folder, self._manifest.tensors, self._manifest.model.id, are_all_there=True)
        text = f"{reason}. Its small files are fetched from the neighbours, beside the weights in {folder}"
        self._reporter.event("model_incomplete", text, folder=str(folder))
        own = await self._fetch(sources, model.folder_around(folder), is_whole=False)
        with disk.os_errors(f"link the weights into {own}"):
            model.assemble(folder)
        return own

    def find_ready(self) -> Path | None:
        """Return the folder if it is ready to be loaded, for a node that only shares its files; else None."""
        try:
            return find_model_folder(self._reference, self._manifest.model.revision) if self._reference else None
        except OperatorError:
            return None  # the worker that loads it reports what is wrong with it

    async def _find_here(self, model: FetchedModel) -> Path | None:
        """Return the model if it is found without the neighbours; None if they must be asked. OperatorError."""
        if self._reference is None:
            return None
        if self._reference == self._manifest.model.id and self._may_fetch and model.is_here():
            return None  # it was fetched in an earlier life: nobody needs to be asked again
        self._tell(f"looking for the model {self._reference}", 0, 0)
        try:
            revision = self._manifest.model.revision
            folder = find_model_folder(self._reference, revision)
            return folder or await resolve_apart(self._reference, revision, self._tell)
        except OperatorError as error:
            if not self._may_fetch:
                raise
            self._reporter.event("model_not_found", f"{error}. The neighbours are asked for it", reason=str(error))
            return None
        finally:
            self._finding = None

    async def _fetch(self, sources: sessions.NeighbourFiles, folder: Path, *, is_whole: bool) -> Path:
        spec = self._manifest.model
        self._fetcher = ModelFetcher(spec, sources, self._pace, self._reporter)
        try:
            await self._fetcher.fetch(spec.files if is_whole else (spec.config, *spec.tokenizer), folder)
        finally:
            self._fetcher = None
        return folder

    def _tell(self, text: str, done: int, total: int) -> None:
        shown = f"{text}: {described_bytes(done, total)}" if total else text
        self._finding = ModelProgress(stage="finding", text=shown, done_bytes=done, total_bytes=total)


async def resolve_apart(reference: str, revision: str, on_progress: OnProgress) -> Path:
    """Return the folder of a model, as `resolve_model` finds it in a process of its own. OperatorError.

    The node goes on during minutes of imports and downloads.
    """
    program = Program(module=_RESOLVING, arguments=("--revision", revision, "--", reference))
    with disk.os_errors("start a process that looks for the model"):
        async with running(program, is_heard=True) as process, aclosing(printed_lines(process)) as lines:
            return await _read(lines, on_progress)


async def _read(lines: AsyncIterator[bytes], on_progress: OnProgress) -> Path:
    async for line in lines:
        match json.loads(line):
            case [str(text), int(done), int(total)]:
                on_progress(text, done, total)
            case [str(folder)]:
                return Path(folder)
            case [_, str(error)]:
                raise OperatorError(error)
    raise OperatorError("the process that looks for the model has ended without a word; what it printed says why")
