"""The status of a running node: a snapshot that the node writes to a file and commands read."""

import json
import time
from dataclasses import dataclass, fields, is_dataclass
from typing import get_type_hints

from protocol.errors import OperatorError
from protocol.ledger import LedgerStatistics, RosterStatistics
from protocol.node import Ending, NodeStatistics
from protocol.schema import Malformed, from_plain_untrusted, to_plain
from sfnode.network import NetworkStatistics
from sfnode.reporter import format_seconds
from sfnode.status.status_detail import StatusDetail
from sfnode.storage import DataDirectory, disk, pasteable
from sfnode.unexpected_errors import SlipState
from sfnode.worker import TrainingStatistics

_FRESH_S = 15.0  # a status older than this means that the daemon hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """Holds the progress of one stage of getting the model into the worker.

    Attributes:
        stage: "finding", on this disk, at the hub or in a package, perhaps converted; "fetching", from the neighbours;
            or "loading", into the worker.
        text: for people.
        done_bytes, total_bytes: of this stage; 0: not known.
        givers: neighbours that send pieces now.
        bytes_per_s: the rate at which pieces arrive.
    """

    stage: str
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    givers: int = 0
    bytes_per_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStatistics:
    """Holds the figures of one life of a node: of its process, and of what its operator allows and needs.

    Attributes:
        time: when the figures were taken, in seconds since 1970.
        pid: process of the node.
        own_name: which the node gives itself; empty: none.
        learns: what the run's model learns, in words.
        paused: why the node does not contribute at present, in words; empty while it does.
        model: progress of the model into the worker; None once it is there, and for a relay.
        join: the argument with which others `sfnode join`; empty where they cannot dial this node.
        join_string: a string to join, complete but for an invitation.
        is_rewarded: whether the run learns from rewards; names_answers: and from right answers that rows name.
        disk_free_bytes: on the disk of the data directory; None where the system does not say.
        slips: unforeseen exceptions since the start that the node survived.
    """

    time: float
    pid: int
    own_name: str
    learns: str
    paused: str
    model: ModelProgress | None
    join: str
    join_string: str
    is_rewarded: bool
    names_answers: bool
    disk_free_bytes: int | None
    slips: SlipState


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Holds the state of one node at one moment, by who knows it.

    In JSON the figures of all sections stand side by side, so their names are unique: programs read ``status["step"]``.

    Attributes:
        end: what the end of the run depends on, for a finished node.
        roster: what the roster says of this node's key.
        detail: fields that only the file has; None in a line of the log.
    """

    node: NodeStatistics
    end: Ending
    ledger: LedgerStatistics
    roster: RosterStatistics
    network: NetworkStatistics
    training: TrainingStatistics
    life: LifeStatistics
    detail: StatusDetail | None = None

    @property
    def may_contribute(self) -> bool:
        """Return whether the node trains and the run accepts its updates."""
        return self.training.is_training and self.roster.is_admitted and self.roster.excluded_from is None

    @property
    def is_catching_up(self) -> bool:
        """Return whether the neighbours hold updates that this node lacks."""
        return self.node.catching_up > self.ledger.updates

    def to_json(self) -> dict[str, object]:
        """Return the status as plain data for JSON."""
        return _flat(self)

    @staticmethod
    def from_json_untrusted(data: object, where: str) -> "Status":
        """Return the status that `to_json` made into ``data``. Malformed names the field below ``where``."""
        return from_plain_untrusted(Status, _nested(Status, data, where), where)


def _flat(record: Status | StatusDetail) -> dict[str, object]:
    """Return the fields of a record with those of its sections in their place."""
    flat: dict[str, object] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, StatusDetail):
            flat[each.name] = _flat(value)
        elif is_dataclass(value):
            flat |= to_plain(value, as_rows=False)
        else:
            flat[each.name] = to_plain(value, as_rows=False)
    return flat


def _nested(kind: type[Status | StatusDetail], data: object, where: str) -> dict[str, object]:
    """Undo `_flat`: put the fields of each section together. The values are not checked yet."""
    if not isinstance(data, dict):
        raise Malformed(f"{where} is not a structure")
    nested: dict[str, object] = {}
    rest = dict(data)
    for name, declared in get_type_hints(kind).items():
        if is_dataclass(declared):
            nested[name] = {each.name: rest.pop(each.name) for each in fields(declared) if each.name in rest}
        elif name in rest:
            nested[name] = rest.pop(name)
    if rest:
        raise Malformed(f"{where}: unknown field {str(next(iter(rest)))[:64]!r}")
    if nested.get("detail") is not None:
        nested["detail"] = _nested(StatusDetail, nested["detail"], f"{where}.detail")
    return nested


def read_status(data_dir: DataDirectory) -> Status:
    """Return the last snapshot of a node. OperatorError: none runs, it hangs, or the file is bad."""
    if (starting_s := data_dir.starting_s()) is not None:
        text = f"the node on {data_dir} has been starting for {format_seconds(starting_s)}: it fetches what is missing"
        more = "looks for a key, reads its disk or rests after a fault of its own. Try again; `sfnode stop` ends it"
        raise OperatorError(f"{text}, {more}", "starting")
    ended = data_dir.end.describe()
    if not ended:
        data_dir.check_is_node()
    if not data_dir.is_locked():
        verb, more = ("start", "") if data_dir.node_file.exists() else ("join", " ...")
        why = f": {ended.removesuffix('.')}" if ended else ""
        following = pasteable(f"sfnode {verb} --data-dir", data_dir) + more
        raise OperatorError(f"no node runs on {data_dir}{why}. Start it with: {following}", "not_running")
    status = last_status(data_dir)
    if status is None:
        text = f"{data_dir.status_file} cannot be read: the node still reads its disk, or is of another release"
        raise OperatorError(f"{text}. Try again, or restart the node with this release", "not_reporting")
    pid, age_s = status.life.pid, time.time() - status.life.time
    if age_s > _FRESH_S:
        text = f"the node on {data_dir} (pid {pid}) has not reported for {age_s:.0f} s: it hangs"
        raise OperatorError(text, "not_reporting")
    if age_s < -_FRESH_S:  # after the clock was set back, a node that hangs must not look alive for hours
        text = f"the node on {data_dir} (pid {pid}) has not reported since this machine's clock was set back"
        raise OperatorError(f"{text} by {-age_s:.0f} s. Try again; if it stays so, the node hangs", "not_reporting")
    return status


def last_status(data_dir: DataDirectory) -> Status | None:
    """Return the last status that a node wrote, even if it has stopped; None where it cannot be read."""
    try:
        data = disk.read_bytes(data_dir.status_file, "the status file")
        return Status.from_json_untrusted(json.loads(data), "status")
    except (OperatorError, ValueError, RecursionError, Malformed):
        return None
