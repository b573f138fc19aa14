"""Run ``sfnode join`` as a process: start it, signal it, and read what it reports in the JSON lines of its log."""

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from sfnode.children.child_program import Program
from sfnode.status import Status

LEAVE_S = 10.0  # once its parent has died: a busy machine takes a few seconds for the goodbyes and the last write

NodeEvent = Mapping[str, object]  # a line of `sfnode join --json`; "event" says which


@dataclass(slots=True)
class NodeProcess:
    """Runs a node on ``directory``; it can be started again after it has ended.

    Attributes:
        arguments: arguments of ``sfnode join`` other than --data-dir and --json.
        process: the present or the last process.
        logs: its output, one file for each start, next to ``directory`` unless `start` gets another path.
    """

    directory: Path
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None
    logs: list[Path] = field(default_factory=list)
    _read_bytes: int = 0  # how far `new_events` has read the last log

    @property
    def words(self) -> list[str]:
        """Return the words that follow `sfnode` on the command line."""
        return ["join", "--data-dir", str(self.directory), "--json", *self.arguments]

    def start(self, log: Path | None = None) -> None:
        """Start the node, or start it again; ``log``: the file for its output."""
        number = f".{len(self.logs)}" if self.logs else ""
        log = log or self.directory.with_name(f"{self.directory.name}{number}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.process = self._launch(output)
        self.logs.append(log)
        self._read_bytes = 0

    def _launch(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        # In our session: Linux shares cores out by session, and Ctrl-C is for all nodes of a test network.
        program = Program(module="sfnode", arguments=tuple(self.words), leave_s=LEAVE_S)
        return program.start(stdout=output, stderr=subprocess.STDOUT, is_own_session=False)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the last process, negative after a signal; None while it runs."""
        code = None if self.process is None else self.process.poll()
        if code is not None:
            self._let_go()
        return code

    def kill(self) -> None:
        """Send SIGKILL and wait: the node ends without a goodbye or a flush."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._let_go()

    def terminate(self) -> None:
        """Send SIGTERM: the node says goodbye and ends."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def _let_go(self) -> None:
        """Close our end of the pipe by which the node sees that we live."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def new_events(self) -> Sequence[NodeEvent]:
        """Return the events since the last call, or since the last start."""
        with self.logs[-1].open("rb") as log:
            log.seek(self._read_bytes)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        self._read_bytes += len(whole)
        objects = [_object(line) for line in whole.splitlines() if line.startswith(b"{")]
        return [each for each in objects if "event" in each]

    def last_words(self) -> str:
        """Return the last line of the log that is not an event: the cause, where the node ended by itself."""
        said = [line for line in self.logs[-1].read_text(errors="replace").splitlines() if line.strip()]
        for line in reversed(said):
            if not line.startswith("{"):
                return line
            if isinstance(error := _object(line).get("error"), dict):
                return f"Error: {error['message']}"
        return "it said nothing"


def _object(line: str | bytes) -> NodeEvent:
    """Return the JSON object of a line; an empty one where a full disk or a hard end has cut the line."""
    with suppress(ValueError):
        return cast(NodeEvent, json.loads(line))
    return {}


@dataclass(slots=True)
class LocalNode:
    """Holds the process of one node and what it has reported.

    Attributes:
        address: where others can dial it; empty until it listens.
        evaluating: how many of how many held-out rows of an evaluation are done; None between evaluations.
        trouble: why it has last skipped a step, or lost its training process; empty: it has not.
    """

    name: str
    process: NodeProcess
    address: str = ""
    status: Status | None = None
    evaluating: tuple[int, int] | None = None
    trouble: str = ""

    def listen(self) -> None:
        """Take in the events that it has logged since the last call."""
        for event in self.process.new_events():
            match event:
                case {"event": "progress", **fields}:
                    self.status = Status.from_json_untrusted(fields, "progress")
                case {"event": "started", "addresses": [str(address), *_]}:
                    self.address = address
                case {"event": "step_skipped" | "worker_lost", "reason": str(reason)}:
                    self.trouble = reason
                case {"event": "evaluating", "done": int(done), "in_all": int(rows)}:
                    self.evaluating = (done, rows)
                case {"event": "evaluated"}:
                    self.evaluating = None
