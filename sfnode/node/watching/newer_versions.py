"""Report that a neighbour runs a newer sfnode. The node never updates itself: nothing from the network is a program."""

import re
from collections.abc import Iterable
from typing import Final

from sfnode.reporter import Reporter

_AGENT: Final = re.compile(r"sfnode/(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_REPORTS_MAX: Final = 3  # of one life: a neighbour can claim any number


class NewerVersions:
    """Looks at what the neighbours say that they are."""

    def __init__(self, reporter: Reporter, own: str) -> None:
        """Take what this node says that it is."""
        self._reporter = reporter
        self._own = own
        self._newest = _numbers(own)
        self._reports = 0

    def look(self, agents: Iterable[str]) -> str:
        """Report the newest version among ``agents`` if it is newer than any before; return the text, or nothing."""
        newest = max(map(_numbers, agents), default=())
        if newest <= self._newest or self._reports == _REPORTS_MAX:
            return ""
        self._newest, self._reports = newest, self._reports + 1
        version = ".".join(map(str, newest))
        text = f"a neighbour says that it runs sfnode {version}, newer than this {self._own}: docs/upgrade.md says more"
        self._reporter.event("newer_version", text, version=version)
        return text


def _numbers(agent: str) -> tuple[int, ...]:
    found = _AGENT.fullmatch(agent)
    return () if found is None else tuple(map(int, found.groups()))
