"""Where a node gets its model from, before it can train: this machine, the hub, a package, or its neighbours."""

from __future__ import annotations

from pathlib import Path

import trio

from protocol.errors import OperatorError
from protocol.run import Manifest, Sharing
from sfnode.model_files import (
    assembled_folder,
    fetched_folder,
    find_model_folder,
    is_fetched,
    lacks_of_definition,
    link_weights,
    remove_others,
)
from sfnode.network import Pace
from sfnode.node.model_fetcher import ModelFetcher
from sfnode.node.model_process import resolve_apart
from sfnode.node.piece_fetcher import PieceSources
from sfnode.reporter import Reporter
from sfnode.run import SharingOptions
from sfnode.status import ModelProgress, ModelStage, described_bytes
from sfnode.storage import describe_os_error


class ModelFinder:
    """Finds the folder that the worker loads. The node relays meanwhile."""

    def __init__(self, manifest: Manifest, reference: str | None, options: SharingOptions, reporter: Reporter) -> None:
        """``reference``: what `resolve_model` takes; None: only the neighbours can have it."""
        self._manifest = manifest
        self._reference = reference
        self._reporter = reporter
        self._may_fetch = may_fetch(manifest, options)
        self._pace = Pace(options.fetch_rate << 20)
        self._fetcher: ModelFetcher | None = None
        self._finding: ModelProgress | None = None

    def look(self) -> ModelProgress | None:
        """Where the search stands now; None when there is none."""
        return self._finding if self._fetcher is None else self._fetcher.look()

    async def find(self, sources: PieceSources) -> Path:
        """A folder with the model's files, as far as names tell: the worker looks at what they hold.

        OperatorError: it is nowhere, or may not be fetched.
        """
        spec = self._manifest.model
        folder = await self._find_here()
        if folder is None:
            return await self._fetch(sources, fetched_folder(spec), is_whole=True)
        reason = await trio.to_thread.run_sync(lacks_of_definition, folder, spec) if self._may_fetch else ""
        if not reason:
            return folder
        text = f"{reason}. Its small files are fetched from the neighbours, beside the weights in {folder}"
        self._reporter.event("model_incomplete", text, folder=str(folder))
        own = await self._fetch(sources, assembled_folder(spec, folder), is_whole=False)
        try:
            remove_others(own, spec)
            link_weights(folder, own)
        except OSError as error:
            raise OperatorError(f"cannot link the weights into {own}: {describe_os_error(error)}") from None
        return own

    def find_ready(self) -> Path | None:
        """The folder that is ready to be loaded, for who only gives its files to others; None where there is none."""
        try:
            return find_model_folder(self._reference, self._manifest.model.revision) if self._reference else None
        except OperatorError:
            return None  # whoever loads it says what is wrong with it

    async def _find_here(self) -> Path | None:
        """The model without the neighbours; None where they are to be asked. OperatorError."""
        if self._reference is None or self._is_fetched():
            return None
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

    def _is_fetched(self) -> bool:
        """Whether an earlier life of a node has fetched it: then neither the hub nor anybody else is asked."""
        spec = self._manifest.model
        is_meant = self._reference == spec.id and self._may_fetch
        return is_meant and is_fetched(spec)

    async def _fetch(self, sources: PieceSources, folder: Path, *, is_whole: bool) -> Path:
        spec = self._manifest.model
        self._fetcher = ModelFetcher(spec, sources, self._pace, self._reporter)
        await self._fetcher.fetch(spec.files if is_whole else (spec.config, *spec.tokenizer), folder)
        self._fetcher = None
        return folder

    def _tell(self, text: str, done: int, total: int) -> None:
        shown = f"{text}: {described_bytes(done, total)}" if total else text
        self._finding = ModelProgress(stage=ModelStage.FINDING, text=shown, done_bytes=done, total_bytes=total)


def may_fetch(manifest: Manifest, options: SharingOptions) -> bool:
    """Whether the model's files may come from neighbours: neither its owner nor this node's operator forbids it."""
    return manifest.model.sharing is Sharing.PEERS and not options.no_fetch_model
