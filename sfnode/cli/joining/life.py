"""Write into the data directory how a node ended, so that `sfnode status` can report it later."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

from protocol.errors import OperatorError, texts_of
from sfnode.storage import expect_end, is_locked, write_end


class Life:
    """Records, as a context, how a node ended: in good order or with one of our errors, but not a kill or a crash."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def enter(self, directory: Path) -> None:
        """Record the end in ``directory``, unless another node runs there."""
        self._directory = None if is_locked(directory) else directory

    def begin(self) -> None:
        """Note that the node runs, and so has not ended in good order yet. Raises OperatorError."""
        if self._directory is not None:
            expect_end(self._directory)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        texts = texts_of(error)
        if self._directory is not None and (error is None or texts):
            with contextlib.suppress(OperatorError):  # must not hide the error that ended the node
                write_end(self._directory, "; ".join(texts))
