"""Build the sections of one node's page, as plain values, from a running node or the data directory it has left.

`LogTail` keeps the last lines of the log for it.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict

from protocol.errors import OperatorError
from protocol.ledger import Ledger
from protocol.run import Manifest
from sfnode import __version__
from sfnode.network import PeerState, policy
from sfnode.page.run_facts import contributions_to, facts_of
from sfnode.quality_figures import Quality
from sfnode.reporter import printable
from sfnode.run import purpose_of
from sfnode.status import Names, Status, StatusWords, author_names, health_of, last_status, learning
from sfnode.storage import DataDirectory, EvaluatedStep, Gain, evaluations

_ANSWERS_MAX = 4
AUTHORS_MAX = 60  # most updates first; the page says how many more there are

# An address of the run may hold an invitation; the values in `detail` have sections of their own.
_NOT_SHOWN = frozenset({"join", "join_string", "pid", "detail"})

_LINES_MAX = 100  # of the log
_LENGTH_MAX = 400  # characters of a line; a peer's text may be long
_SECRET = re.compile(r"\b(invite:|sfnode:)\S+")  # an address of the run may hold an invitation

Sections = Mapping[str, object]
LogLine = tuple[float, int, str]  # seconds since 1970, level of Python's ``logging``, text


class LogTail:
    """Keeps the newest lines of the log. A reporter passes it every event."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)

    def take(self, level: int, lines: tuple[str, ...]) -> None:
        """Keep new lines, stamped with the current time and without secrets that admit to the run."""
        texts = (_SECRET.sub(r"\1...", printable(line))[:_LENGTH_MAX] for line in lines)
        self._lines.extend((round(time.time(), 1), level, text) for text in texts)

    @property
    def lines(self) -> list[LogLine]:
        """Return the lines that are kept, oldest first."""
        return list(self._lines)


class Page:
    """Builds the page of the node with one data directory.

    Args:
        ledger: returns the node's ledger; None while it is being read.
        pid: process id of the node; statuses of other processes are ignored. None: no node runs, any status is shown.
        tail: the node's last log lines; None: there are none.
        said: returns the names that a running node has checked, by author in hex; None: they are read, and checked.
    """

    def __init__(
        self,
        data_dir: DataDirectory,
        manifest: Manifest,
        ledger: Callable[[], Ledger | None],
        *,
        pid: int | None = None,
        tail: LogTail | None = None,
        said: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._data_dir, self._manifest = data_dir, manifest
        self._quality = Quality.of(manifest.task)
        self._ledger, self._pid, self._tail = ledger, pid, tail or LogTail()
        self._said = said

    def sections(self) -> Sections:
        """Return the sections by name, as values for JSON. Takes milliseconds; most of a second in the largest runs."""
        status, (found, gain) = self._status(), self._measured()
        detail = None if status is None else status.detail
        return {
            "run": self._run(),
            "status": None if status is None else _status(status),
            "evaluations": self._evaluations(found),
            "gain": self._gain(gain),
            "answers": self._answers(gain),
            "losses": [] if detail is None else [(each.step, self._figure(each.loss)) for each in detail.curve.losses],
            **self._authors(status),
            "neighbours": [] if detail is None else [_neighbour(each) for each in detail.peers],
            "log": self._tail.lines,
        }

    def _status(self) -> Status | None:
        """Return the last status that was written, if it is readable and of the right process."""
        status = last_status(self._data_dir)
        return status if status is not None and self._pid in (None, status.life.pid) else None

    def _run(self) -> Sections:
        manifest = self._manifest
        return {
            "name": manifest.name,
            "id": manifest.run_id.hex(),
            "steps": manifest.steps,
            "is_live": self._pid is not None,
            "is_rewarded": self._quality.is_reward,
            "draws_answers": manifest.task.draws_answers,
            "learns": printable(purpose_of(manifest.task)),
            "version": __version__,
            "facts": facts_of(manifest),
        }

    def _evaluations(self, found: list[EvaluatedStep]) -> Sections:
        best = evaluations.best_of(found)
        return {
            "points": [(each.step, self._figure(each.loss), round(each.accuracy, 5)) for each in found],
            "best_step": None if best is None else best.step,
            "is_worse": learning.has_become_worse(found),
        }

    def _figure(self, loss: float) -> float:
        return round(self._quality.value(loss), 5)

    def _measured(self) -> tuple[list[EvaluatedStep], Gain | None]:
        """Return the evaluations and the gain that stand, as far as their files can be read; none without a ledger."""
        found, gain, ledger = list[EvaluatedStep](), None, self._ledger()
        if ledger is None:
            return found, gain
        with suppress(OperatorError):
            found = evaluations.standing(self._data_dir.evaluations.read(), ledger.roster)
        with suppress(OperatorError):
            gain = self._data_dir.gain.standing(ledger.roster) or evaluations.gain_of(found)
        return found, gain

    def _gain(self, gain: Gain | None) -> Sections:
        """Return the figures of the last comparison by name, and a sentence on it; or on how to measure."""
        if gain is None:
            return {"figures": [], "note": f"Not measured here: {evaluations.HOW_TO_MEASURE}."}
        figures = [(name, found.figure) for name, found in gain.figures()]
        note = f"Measured at step {gain.after.step:,} on {gain.after.rows:,} held-out rows."
        if gain.own is None:
            note += f" `sfnode eval --compare` measures {evaluations.OWN_ALONE}, too."
        return {"figures": figures, "note": note}

    def _answers(self, gain: Gain | None) -> list[Sections]:
        """Return the first answers of the last comparison, where anybody may see its rows."""
        if gain is None or not gain.is_public:
            return []
        return [
            {
                "prompt": printable(new.prompt),
                "right": printable(new.right),
                "answers": [
                    [name, printable(each.text), each.reward]
                    for name, each in ((evaluations.ALONE, old), (evaluations.NOW, new))
                ],
            }
            for old, new in zip(gain.before.answers[:_ANSWERS_MAX], gain.after.answers, strict=False)
        ]

    def _authors(self, status: Status | None) -> Sections:
        ledger = self._ledger()
        found = [] if ledger is None else contributions_to(ledger, self._manifest)
        own = "" if status is None else status.node.author
        later = [each for each in found[AUTHORS_MAX:] if each.author.hex() == own]  # this node is always shown
        shown = [*found[: AUTHORS_MAX - len(later)], *later]
        names = Names() if ledger is None else self._names(ledger)
        keys = [(each, each.author.hex()) for each in shown]
        authors = [{**asdict(each), "author": key, "name": names.of(key), "is_own": key == own} for each, key in keys]
        return {"authors": authors, "authors_in_all": len(found)}

    def _names(self, ledger: Ledger) -> Names:
        try:
            if self._said is not None:
                return author_names.names_known(self._data_dir, ledger.roster, self._said())
            with self._data_dir.reading() as stored:
                return author_names.stored_names(self._data_dir, stored, ledger.roster)
        except OperatorError:
            return Names()


def _status(status: Status) -> Sections:
    shown = {name: value for name, value in status.to_json().items() if name not in _NOT_SHOWN}
    words = StatusWords(status)
    texts = {
        "trouble": health_of(status)[1] or learning.describe_learning(status),
        "stage": words.stage,
        "pace": words.pace,
        "left": words.time_left,
    }
    return {**shown, "words": texts}


def _neighbour(each: PeerState) -> Sections:
    return {
        "author": policy.author_of_peer(each.peer).hex(),
        "name": each.name,
        "address": each.address,
        "is_outbound": each.is_outbound,
        "delay_ms": each.rtt_ms,
        "updates": each.updates,
        "is_equal": each.is_equal,
    }
