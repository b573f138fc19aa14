"""How traces are written: events and effects as rows, and bytes in which records and statements have names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never

from protocol.crypto import Author
from protocol.errors import RejectReason
from protocol.events import (
    DropPeer,
    Effect,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    Event,
    FetchFailed,
    FetchSnapshot,
    Halt,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    ReportSnapshot,
    ReserveStep,
    SendMessage,
    SnapshotArrived,
    StartEstimate,
    StatementSubmitted,
    StoreRecords,
    StoreSnapshot,
    StoreStatements,
    Ticked,
    TrainingSwitched,
    WorkerReady,
)
from protocol.wire import Attestations, Message, Records, Statements, encode
from tests.vectors.notation import compact, key_text

Row: TypeAlias = list[Any]
_SHOWN_CHARACTERS_MAX = 1_500  # of a message in an effect; a longer one is given by its hash
_PART_BYTES_MIN = 97  # records and statements are not shorter
_BEGINNING_BYTES = 8  # by which they are looked for


class Parts:
    """Records and statements by name. A name says who made them and for what, so that a trace can be read."""

    def __init__(self, names: Mapping[Author, str]) -> None:
        """``names``: of authors, by key."""
        self._authors = names
        self._names: dict[bytes, str] = {}
        self._beginnings: set[bytes] = set()

    def table(self) -> dict[str, str]:
        """The member ``parts`` of the file."""
        return {name: data.hex() for data, name in self._names.items()}

    def add_record(self, record: bytes) -> None:
        """Give a record a name, unless it has one."""
        step = int.from_bytes(record[32:36], "big")
        self._add(record, f"{self._author(record[:32])} {step}")

    def add_statement(self, statement: bytes) -> None:
        """Give a statement a name, unless it has one."""
        kind, subject = statement[0], statement[1:33]
        match kind:
            case 1:
                name = f"admission of {self._author(subject)}"
            case 2:
                name = f"exclusion of {self._author(subject)} from {int.from_bytes(statement[33:37], 'big')}"
            case _:
                name = f"claim by {self._author(statement[33:65])}"
        self._add(statement, name)

    def add_attestation(self, attestation: bytes) -> None:
        """Give an attestation a name, unless it has one."""
        step = int.from_bytes(attestation[32:36], "big")
        self._add(attestation, f"attestation by {self._author(attestation[:32])} of {step}")

    def _author(self, key: bytes) -> str:
        return self._authors.get(Author(key), key.hex()[:8])

    def _add(self, data: bytes, name: str) -> None:
        if data in self._names:
            return
        taken, chosen, number = set(self._names.values()), name, 2
        while chosen in taken:
            chosen, number = f"{name} ({number})", number + 1
        self._names[data] = chosen
        self._beginnings.add(data[:_BEGINNING_BYTES])

    def written(self, data: bytes) -> Any:
        """Bytes, in which what has a name is named, and long rows of zeros are short."""
        pieces: list[Any] = []
        rest = start = 0
        while start + _PART_BYTES_MIN <= len(data):
            name, length = self._found(data, start)
            if name is None:
                start += 1
                continue
            pieces += [*_plain(data[rest:start]), {"part": name}]
            rest = start = start + length
        pieces += _plain(data[rest:])
        return pieces[0] if len(pieces) == 1 else pieces or ""

    def _found(self, data: bytes, start: int) -> tuple[str | None, int]:
        if data[start : start + _BEGINNING_BYTES] not in self._beginnings:
            return None, 0
        for part, name in self._names.items():
            if data.startswith(part, start):
                return name, len(part)
        return None, 0


def _plain(data: bytes) -> list[Any]:
    return compact(data, b"\0", readable=False)


def add_parts(told: Event | Effect, record_bytes: int, parts: Parts) -> None:
    """Name the records, statements and attestations that an event or effect carries."""
    match told:
        case MessageArrived() | SendMessage():
            _add_parts_of(told.message, record_bytes, parts)
        case StatementSubmitted():
            parts.add_statement(told.statement)
        case StoreRecords():
            for record in told.records:
                parts.add_record(record)
        case _:
            pass  # carries none


def _add_parts_of(message: Message, record_bytes: int, parts: Parts) -> None:
    match message:
        case Records() if len(message.data) % record_bytes == 0:
            for start in range(0, len(message.data), record_bytes):
                parts.add_record(message.data[start : start + record_bytes])
        case Statements():
            for statement in message.statements:
                parts.add_statement(statement)
        case Attestations():
            for attestation in message.attestations:
                parts.add_attestation(attestation)
        case _:
            pass


def event_row(event: Event, parts: Parts) -> Row:
    """Its name in SPEC 9, and what it carries."""
    name = type(event).__name__
    match event:
        case PeerJoined() | PeerLeft():
            return [name, event.peer]
        case MessageArrived():
            return [name, event.peer, type(event.message).__name__, parts.written(encode(event.message))]
        case EstimateFinished():
            return [name, event.step, list(event.scalars)]
        case EstimateSkipped() | EstimateLost():
            return [name, event.step]
        case WorkerReady():
            return [name]
        case TrainingSwitched():
            return [name, event.is_on]
        case StatementSubmitted():
            return [name, parts.written(event.statement)]
        case SnapshotArrived():
            return [name, parts.written(event.data)]
        case FetchFailed():
            return [name, event.sha256]
        case Ticked():
            return [name, event.late_ms]
        case _:
            assert_never(event)


def effect_row(effect: Effect, parts: Parts) -> Row:
    """Its name in SPEC 9, and what it carries; texts for people are left out."""
    name = type(effect).__name__
    match effect:
        case StoreRecords():
            return [name, [parts.written(record) for record in effect.records], effect.is_own]
        case StoreStatements():
            return [name, [parts.written(statement) for statement in effect.statements]]
        case ReserveStep():
            return [name, effect.step]
        case StartEstimate():
            return [name, effect.step, key_text(effect.seed), effect.directions]
        case SendMessage():
            return [name, effect.peer, type(effect.message).__name__, _short(encode(effect.message), parts)]
        case DropPeer():
            return [name, effect.peer, _reason(effect.reason)]
        case StoreSnapshot():
            return [name, effect.step, effect.sha256, _short(effect.data, parts)]
        case FetchSnapshot():
            return [name, effect.sha256, effect.file_bytes]
        case ReportSnapshot():
            return [name, effect.outcome.value, effect.step, [author.hex() for author in effect.authors]]
        case Halt():
            return [name, [parts.written(attestation) for attestation in effect.attestations]]
        case _:
            assert_never(effect)


def _short(data: bytes, parts: Parts) -> Any:
    written = parts.written(data)
    if len(str(written)) <= _SHOWN_CHARACTERS_MAX:
        return written
    return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}


def _reason(text: str) -> str | None:
    """The name of SPEC 8.6 with which an error's text begins; None: another reason, in words."""
    name = text.partition(":")[0].upper()
    return name if name in RejectReason.__members__ else None
