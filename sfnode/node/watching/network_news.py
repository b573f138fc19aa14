"""Report news to the operator: peers that come and go, addresses out of reach, the port mapping, memory, admission.

And that a neighbour runs a newer sfnode, or another node has this one's key. The node never updates itself: nothing
from the network is a program.
"""

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict

from protocol.crypto import Author
from protocol.events import Event, PeerJoined, PeerLeft
from protocol.ledger import Ledger
from protocol.wire import PeerId
from sfnode.network import MappingReport, MemoryState, Network, policy
from sfnode.reporter import Reporter, format_seconds
from sfnode.status import ADMITTED, News, Status, admission_of
from sfnode.storage import DataDirectory

_NEWS_MAX = 8
_LINES_MAX, _LINES_PER_S = 64, 1 / 60  # at once and then, of peers that came and of those that left: 0.5 MB a day
_AGENT = re.compile(r"sfnode/(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_REPORTS_MAX = 3  # of one life: a neighbour can claim any number


class NetworkNews:
    """Reports changes in the network to the operator, and remembers the latest.

    Args:
        label: returns how a peer is called, with the short form of its key.
        agent: what this node says that it is.
    """

    def __init__(self, reporter: Reporter, label: Callable[[PeerId], str], agent: str) -> None:
        self._reporter, self._label = reporter, label
        self._latest: deque[News] = deque(maxlen=_NEWS_MAX)
        self._lines, self._left_out = policy.TokenBuckets(_LINES_MAX, _LINES_PER_S), Counter[str]()
        self._dials: set[tuple[str, str]] = set()
        self._mapping: MappingReport | None = None
        self._is_memory_full = False
        self._versions = NewerVersions(reporter, agent)

    @property
    def latest(self) -> tuple[News, ...]:
        """Return the latest news, the newest last."""
        return tuple(self._latest)

    def _remember(self, text: str, *, is_bad: bool) -> None:
        self._latest.append(News(time=time.time(), text=text, is_bad=is_bad))

    def tell_of_peer(self, event: Event) -> None:
        if isinstance(event, PeerJoined):
            self._tell_of("peer_joined", f"peer {self._label(event.peer)} joined", is_bad=False, peer=event.peer)
        elif isinstance(event, PeerLeft):
            text = f"peer {self._label(event.peer)} left: {event.reason}"
            self._tell_of("peer_left", text, is_bad=True, peer=event.peer, reason=event.reason)

    def _tell_of(self, name: str, text: str, *, is_bad: bool, **fields: str) -> None:
        """Report that a peer came or left, or count it for the next line: new ids cost strangers nothing."""
        if self._lines.take(name, time.monotonic(), wait_s_max=0.0) is None:
            self._left_out[name] += 1
            return
        left_out = self._left_out.pop(name, 0)
        more: dict[str, object] = {"left_out": left_out} if left_out else {}
        self._reporter.event(name, f"{text} ({left_out:,} more)" if left_out else text, **fields, **more)
        self._remember(text, is_bad=is_bad)

    def look(self, network: Network, memory: MemoryState) -> None:
        # Why an address cannot be reached, each reason once while it lasts. Anybody can invent peers: not of those.
        known = [report for report in network.dialler.reports if report.is_expected]
        reports = {(report.address, report.reason): report for report in known}
        for key in sorted(reports.keys() - self._dials):
            report = reports[key]
            is_later = round(report.retry_in_s) > 0
            retry = f"next try in {format_seconds(report.retry_in_s)}" if is_later else "trying again at once"
            text = f"cannot reach {report.address}: {report.reason}; {retry}"
            self._reporter.event("dial_failed", text, address=report.address, reason=report.reason)
            self._remember(f"cannot reach {report.address.split('/p2p/')[0]}: {report.reason}", is_bad=True)
        self._dials = set(reports)
        mapping = network.mapper.report
        if mapping is not None and mapping != self._mapping:
            address = None if mapping.address is None else mapping.address.transport
            self._reporter.event("port_mapping", mapping.text, address=address)
            self._mapping = mapping
        if memory.is_full != self._is_memory_full:  # inbound neighbours are dropped to save memory, or that has ended
            self._is_memory_full = memory.is_full
            self._reporter.event("memory", memory.in_words(), **asdict(memory))
            self._remember(f"memory: {memory.in_words()}", is_bad=memory.is_full)
        if text := self._versions.look(peer.agent for peer in network.neighbours()):
            self._remember(text, is_bad=False)


class AdmissionNews:
    """Reports when this node's key may not contribute, why, and when that changes."""

    def __init__(self, data_dir: DataDirectory, reporter: Reporter) -> None:
        self._statements = data_dir.statements
        self._reporter = reporter
        self._reported = ADMITTED

    def look(self, status: Status, *, is_live: bool) -> None:
        """Report what has changed; ``is_live``: this node has everything that its neighbours had.

        Before that nothing is reported: the statement that admits this node may still come, from a neighbour or from
        the folder of statements.
        """
        is_settled = is_live if status.node.peers else not status.network.expects_peers
        if not status.training.is_training or not is_settled or self._statements.waiting():
            return
        admission, roster = admission_of(status), status.roster
        if admission != self._reported:
            fields = {"is_admitted": roster.is_admitted, "excluded_from": roster.excluded_from}
            self._reporter.event("admission", admission, **fields)
        self._reported = admission


class KeyCopyNews:
    """Reports once that another node seems to run with this node's key: only who has it can make a slot void."""

    def __init__(self, reporter: Reporter, own: Author) -> None:
        self._reporter, self._own = reporter, own
        self._void_slots = 0

    def look(self, ledger: Ledger) -> None:
        has_new, self._void_slots = ledger.void_slots > self._void_slots, ledger.void_slots
        if has_new and any(ledger.slots.bucket(span, self._own).void for span in ledger.slots.spans()):
            text = (
                "two updates of this node's key for one step are in the ledger: another node seems to run, or to "
                "have run, with a copy of the key. Stop one of the two, since each voids the other's updates"
            )
            self._reporter.event_once(logging.WARNING, "key_copy", text)


def report_full_table(status: Status, reporter: Reporter) -> None:
    """Report once that a neighbour's author table and this node's are full of different authors."""
    if status.end.full_peers:
        authors = f"{status.ledger.authors:,} authors, as many as the run allows"
        text = f"the author table is full: this node holds updates of {authors}, and a neighbour those of others. "
        text += "They will never hold the same model, unless the owner excludes some of these authors"
        reporter.event_once(logging.WARNING, "full_table", text)


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
