"""What a look at one data directory gives: a status, and why there is no newer one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.status import Status, describe_learning, judge_status, read_status


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node as it was seen last.

    Attributes:
        status: the last that could be read; None: none yet.
        trouble: why there is none now: the node has stopped, hangs, or was never there; empty while it reports.
        is_done: that it has stopped is as it should be: its run is over.
    """

    directory: Path
    status: Status | None = None
    trouble: str = ""
    is_done: bool = False

    def warnings(self) -> list[str]:
        """What the operator should know, the worst first; each one a sentence without its full stop."""
        if self.trouble or self.status is None:
            return [self.trouble] if self.trouble else []
        return [text for text in (judge_status(self.status)[1], describe_learning(self.status)) if text]


def look(view: NodeView) -> NodeView:
    """Look again; what was seen last stays where there is nothing newer."""
    try:
        return NodeView(directory=view.directory, status=read_status(view.directory))
    except OperatorError as error:
        return _without_news(view, str(error))


def _without_news(view: NodeView, error: str) -> NodeView:
    """A node that was finished when it was seen last has not failed: it has left."""
    if view.status is None or not view.status.is_over or not error.startswith("no node runs"):
        return replace(view, trouble=error)
    text = f"the node has finished its run and stopped. Its model: sfnode export --data-dir {view.directory}"
    return replace(view, trouble=text, is_done=True)
