"""One life of a node's process: it ends when `sfnode stop` asks for it, and its end is there to read afterwards."""

import contextlib
import os
from types import TracebackType

import trio

from protocol.errors import OperatorError, texts_of
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory
from sfnode.unexpected_errors import Slips

_LOOK_S = 0.5


class Life:
    """Records, as a context, how a node ended: in good order or with one of our errors, but not a kill or a crash."""

    def __init__(self) -> None:
        self._data_dir: DataDirectory | None = None
        self._start, self._has_begun = contextlib.ExitStack(), False

    def announce(self, data_dir: DataDirectory) -> None:
        """Show until `begin` that a node starts in this directory, which is claimed; its end is recorded there.

        Keeps others from starting there until the context ends. Forgets a request to stop an earlier life. Does nothing
        where a node runs. OperatorError: one starts there, or rests between two of its daemon's lives.
        """
        if self._data_dir is not None or data_dir.is_locked():
            return
        with contextlib.ExitStack() as start:
            start.callback(os.close, data_dir.lock_start())
            if not data_dir.is_locked():  # none has begun since the last look
                data_dir.control.forget_stop()
                self._data_dir, self._start = data_dir, start.pop_all()

    def begin(self, data_dir: DataDirectory) -> None:
        """Note that the node runs there, and so has not ended in good order yet. Raises OperatorError."""
        self._data_dir, self._has_begun = data_dir, True  # one that ran there when this one announced itself has ended
        data_dir.end.expect()

    async def stop_on_request(self, scope: trio.CancelScope, reporter: Reporter) -> None:
        slips = Slips()
        while True:
            with slips.contained("stop"):
                if self._data_dir is not None and self._data_dir.control.is_asked_to_stop():
                    reporter.event("stopping", "stopping on `sfnode stop`: saying goodbye to the peers", signal="")
                    scope.cancel()
                    return
            await trio.sleep(_LOOK_S)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Who cancels a node of the Python API ends it in good order.
        rest = error and BaseExceptionGroup("", [error]).split(trio.Cancelled)[1]
        texts = texts_of(rest)
        is_ours = self._data_dir is not None and (self._has_begun or not self._data_dir.is_locked())
        with self._start, contextlib.suppress(OperatorError):  # must not hide the error that ended the node
            if self._data_dir is not None and is_ours and (rest is None or texts):
                self._data_dir.end.write("; ".join(texts))
