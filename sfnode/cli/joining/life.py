"""One life of a node: how it ended is written into its data directory, so that `sfnode status` can say it later."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

from protocol.errors import OperatorError, texts_of
from sfnode.storage import expect_end, is_locked, write_end


class Life:
    """A context: what leaves it is the end. Whoever is killed in it, or crashes, leaves no last words."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def enter(self, directory: Path) -> None:
        """It is about this directory, unless another node is at work there."""
        self._directory = None if is_locked(directory) else directory

    def begin(self) -> None:
        """The node runs. OperatorError."""
        if self._directory is not None:
            expect_end(self._directory)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        texts = texts_of(error)
        if self._directory is not None and (error is None or texts):
            with contextlib.suppress(OperatorError):  # the error itself is what people must hear
                write_end(self._directory, "; ".join(texts))
