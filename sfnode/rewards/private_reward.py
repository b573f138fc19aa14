"""Say how good an answer is by a node's own command, ``--private-reward``: it gets JSON lines and prints numbers.

Nothing of the command comes from the network. What a run's rule says of an answer: `rewards`.
"""

import json
import logging
import os
import shlex
import shutil
from collections.abc import Mapping

from protocol.errors import OperatorError
from sfnode.children.operator_command import Dialogue

log = logging.getLogger("sfnode.rewards")

_RESTARTS_MAX = 3  # over a node's whole time: a command that ends again and again has a fault of its own
_LIMIT_S = 10.0
_FIRST_LIMIT_S = 60.0  # of a process, its start included: a checker may load a model of its own
_HELP = (
    'for each line such as {"row": {...}, "answer": "...", "ended": true} it prints one line with a number of 0 to 1, '
    "and flushes it"
)


class RewardCommand:
    """Rewards answers by what a command prints, one process for all of them, which `close` ends.

    OperatorError: the command is empty, its quotes do not match, or there is no such program.
    """

    def __init__(self, command: str, limit_s: float = _LIMIT_S, first_limit_s: float = _FIRST_LIMIT_S) -> None:
        self._command, self._limit_s, self._first_limit_s = command, limit_s, first_limit_s
        self._process: Dialogue | None = None
        self._starts = 0
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise self._fault(f"{error}: check its quotes") from None
        if not self._words:
            raise self._fault("name a program")
        if shutil.which(self._words[0]) is None:
            is_there = os.path.exists(self._words[0])
            help_ = "is not found; no shell reads the command: where it needs one, give sh -c '...'"
            help_ = "is no program: chmod +x makes a file one, or begin with python3" if is_there else help_
            raise self._fault(f"{self._words[0][:80]} {help_}")

    def reward(self, answer: str, has_ended: bool, row: Mapping[str, object]) -> float:
        """Return the answer's reward, 0 to 1. Blocks until the command has said it.

        OperatorError: it cannot be started, prints something else, or has failed too often.
        """
        line = json.dumps({"row": dict(row), "answer": answer, "ended": has_ended}).encode("ascii")
        while True:
            limit_s = self._limit_s if self._process is not None else self._first_limit_s
            try:
                said = self._running().ask(line, limit_s)
            except (TimeoutError, EOFError) as error:
                self.close()
                what = "ended" if isinstance(error, EOFError) else f"said nothing for {limit_s:g} s"
                if self._starts > _RESTARTS_MAX:
                    raise self._fault(f"{what}, after {_RESTARTS_MAX} restarts: {_HELP}") from None
                log.warning("%s", self._fault(f"{what}; it is started again, {self._starts} of {_RESTARTS_MAX}"))
                continue
            return self._number(said)

    def close(self) -> None:
        """End the process. The next question starts another one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _running(self) -> Dialogue:
        if self._process is None:
            self._starts += 1
            try:
                self._process = Dialogue(self._words)
            except OSError as error:
                raise self._fault(f"cannot be started: {error.strerror}: begin with what runs it, as python3") from None
        return self._process

    def _number(self, said: bytes) -> float:
        try:
            value = float(said)
        except ValueError:
            value = float("nan")
        if not 0.0 <= value <= 1.0:
            self.close()
            raise self._fault(f"said {said[:64].decode('utf-8', 'replace')!r}: {_HELP}")
        return value

    def _fault(self, what: str) -> OperatorError:
        return OperatorError(f"--private-reward {self._command[:80]!r}: {what}")
