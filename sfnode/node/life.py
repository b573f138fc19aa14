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
        self._start = contextlib.ExitStack()

    def announce(self, data_dir: DataDirectory) -> None:
        """Show until `begin` that a node starts in this directory, which is claimed; its end is recorded there.

        Forgets a request to stop an earlier life. Does nothing where a node runs. OperatorError: one starts there.
        """
        if self._data_dir is not None or data_dir.is_locked():
            return
        with contextlib.ExitStack() as start:
            start.callback(os.close, data_dir.lock_start())
            if not data_dir.is_locked():  # none has begun since the last look
                data_dir.control.forget_stop()
                self._data_dir, self._start = data_dir, start.pop_all()

    def begin(self) -> None:
        """Note that the node runs, and so has not ended in good order yet. Raises OperatorError."""
        self._start.close()
        if self._data_dir is not None:
            self._data_dir.end.expect()

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
        self._start.close()
        # Who cancels a node of the Python API ends it in good order.
        rest = error and BaseExceptionGroup("", [error]).split(trio.Cancelled)[1]
        texts = texts_of(rest)
        if self._data_dir is not None and (rest is None or texts):
            with contextlib.suppress(OperatorError):  # must not hide the error that ended the node
                self._data_dir.end.write("; ".join(texts))
