"""Write the status file if that is possible: a full disk does not end a node."""

import logging
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.reporter import Reporter
from sfnode.status import Status
from sfnode.storage import disk


class StatusFile:
    """Keeps the last status of one node in a file, for other processes."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self._path, self._reporter = path, reporter
        self._is_written = True

    def write(self, status: Status) -> None:
        """Write the file. A failure does not end the node; it is reported once, and so is the end of the failure."""
        try:
            disk.write_json(self._path, status.to_json())
        except OperatorError as error:
            if self._is_written:
                text = f"{error}. The node goes on; `sfnode status` shows nothing new until the file can be written"
                self._reporter.event_at(logging.WARNING, "status_file", text, is_written=False, reason=str(error))
            self._is_written = False
            return
        if not self._is_written:
            self._reporter.event("status_file", f"{self._path} is written again", is_written=True)
        self._is_written = True
