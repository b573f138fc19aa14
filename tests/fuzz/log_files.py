"""Target ``log``: a log file is refused with a reason and the byte, or it is what encoding its content gives again."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from nacl.bindings import crypto_sign_open

from protocol.crypto.hashing import hash_fields
from protocol.documents.log_file import MAGIC, LogReader, encode_log
from protocol.errors import Ignore, Reject
from protocol.run.manifest import sign_manifest
from protocol.state.replica import Replica
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import seal, signer
from tests.support.manifests import OWNER, small_manifest

MANIFEST = small_manifest(steps=4)
SIGNED = sign_manifest(MANIFEST, OWNER)
WRITER = signer(9)
_RECORDS = tuple(
    seal(MANIFEST, author, step, scalar) for author in range(2) for step in range(2) for scalar in range(3)
)
_END_TAG = b"sfnode/log-end/1"


def check_file(data: bytes) -> None:
    """Any bytes; and blocks with odd contents whose checks fit."""
    _verdict(data)
    _verdict(_disturbed(Choices(data)))


def _verdict(data: bytes) -> None:
    try:
        reader = LogReader(io.BytesIO(data).read, lambda done, updates: None)
        loaded = reader.rest_untrusted(reader.manifest_untrusted())
    except Reject as reject:
        reason_of(reject)
        at = re.match(r"byte ([\d,]+): ", reject.detail)
        assert at is not None and int(at[1].replace(",", "")) <= len(data)
        return
    ledger = loaded.replica.ledger
    assert loaded.records == ledger.updates + 2 * ledger.void_slots
    assert loaded.replica.state_digest() == loaded.replica.replayed_digest()
    records = list(ledger.slots.ordered_records())
    assert len(records) == loaded.records and all(record in data for record in records)
    assert data.startswith(MAGIC) and loaded.signed.encode() in data
    places = [data.index(record) for record in sorted(records, key=lambda record: (record[32:36], record))]
    assert places == sorted(places)
    totals, signature, check = data[-208:-96], data[-96:-32], data[-245:-213]
    crypto_sign_open(signature + _END_TAG + check + totals, loaded.writer)


def _disturbed(choices: Choices) -> bytes:
    """Chosen records in a chosen order, in chosen blocks, signed by a writer who tells the truth or lies a little."""
    replica, chosen = Replica(MANIFEST), []
    for _ in range(choices.below(8)):
        record = choices.pick(_RECORDS)
        chosen.append(record)
        try:
            replica.add(record)
        except Ignore:
            continue
    if choices.one_in(2):
        chosen = sorted(set(chosen), key=lambda record: (record[32:36], record))
    lie = choices.below(3) if choices.one_in(4) else 0
    totals = b"".join((len(chosen) + lie).to_bytes(8, "big") if part is None else part for part in _totals(replica))
    blocks = [(1, SIGNED.encode())]
    cut = choices.below(len(chosen) + 1)
    blocks += [(3, b"".join(part)) for part in (chosen[:cut], chosen[cut:]) if part or choices.one_in(8)]
    check, data = bytes(32), MAGIC
    for kind, body in blocks:
        data, check = _block(data, check, choices.below(6) if choices.one_in(16) else kind, body)
    end = totals + WRITER.sign(_END_TAG + check + totals)
    return _block(data, check, 4, end[: choices.below(180)] if choices.one_in(8) else end)[0]


def _totals(replica: Replica) -> list[bytes | None]:
    ledger = replica.ledger
    return [None, ledger.updates.to_bytes(8, "big"), ledger.root(), replica.state_digest(), WRITER.author]


def _block(data: bytes, check: bytes, kind: int, body: bytes) -> tuple[bytes, bytes]:
    check = bytes(hash_fields("sfnode/log/1", check, bytes([kind]), body))
    return data + bytes([kind]) + len(body).to_bytes(4, "big") + body + check, check


def _file(records: tuple[bytes, ...], odd: bytes) -> bytes:
    """These records in this order, and a signature that ends with ``odd``; all checks fit."""
    replica, check = Replica(MANIFEST), bytes(32)
    for record in records:
        replica.add(record)
    data, check = _block(MAGIC, check, 1, SIGNED.encode())
    data, check = _block(data, check, 3, b"".join(records))
    totals = b"".join(len(records).to_bytes(8, "big") if part is None else part for part in _totals(replica))
    end = totals + WRITER.sign(_END_TAG + check + totals)
    return _block(data, check, 4, end[: len(end) - len(odd)] + odd)[0]


def log_seeds() -> Iterator[bytes]:
    """Good files, each fault, and choices that make others."""
    replica = Replica(MANIFEST)
    yield b"".join(encode_log(SIGNED, None, replica, WRITER))
    for record in (*_RECORDS[:2], _RECORDS[7]):
        replica.add(record)
    whole = b"".join(encode_log(SIGNED, None, replica, WRITER))
    yield whole
    yield whole[:-1]
    yield whole + b"\0"
    yield whole[:16]
    yield MAGIC + b"\1\xff\xff\xff\xff"
    yield whole.replace(b"sfnode/log/1", b"sfnode/log/2")
    for at in (17, 100, len(MAGIC) + 5 + len(SIGNED.encode()), len(whole) - 400, len(whole) - 100, len(whole) - 1):
        yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for pair in ((_RECORDS[3], _RECORDS[6]), (_RECORDS[9], _RECORDS[0])):
        yield _file(tuple(sorted(pair)), b"")
    yield _file(_RECORDS[:1], b"\1")
    for number in range(24):
        yield bytes((number * 13 + index * (number + 5)) % 256 for index in range(24))


TARGETS = {"log": Target(check=check_file, seeds=log_seeds)}
