"""Write into the data directory how a node ended, so that `sfnode status` can report it later."""

from __future__ import annotations

import contextlib
from types import TracebackType

from protocol.errors import OperatorError, texts_of
from sfnode.storage import DataDirectory


class Life:
    """Records, as a context, how a node ended: in good order or with one of our errors, but not a kill or a crash."""

    def __init__(self) -> None:
        self._data_dir: DataDirectory | None = None

    def enter(self, data_dir: DataDirectory) -> None:
        """Record the end there, unless another node runs there."""
        self._data_dir = None if data_dir.is_locked() else data_dir

    def begin(self) -> None:
        """Note that the node runs, and so has not ended in good order yet. Raises OperatorError."""
        if self._data_dir is not None:
            self._data_dir.end.expect()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        texts = texts_of(error)
        if self._data_dir is not None and (error is None or texts):
            with contextlib.suppress(OperatorError):  # must not hide the error that ended the node
                self._data_dir.end.write("; ".join(texts))
