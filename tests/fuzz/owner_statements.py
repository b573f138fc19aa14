"""Target ``statement``: the roster gives the verdict of a literal reading of SPEC 7.7, in runs of every admission."""

from __future__ import annotations

from collections.abc import Iterator

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.exceptions import BadSignatureError

from protocol.errors import Reject
from protocol.ledger.roster import Roster
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import Manifest
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import admit, claim, exclude
from tests.support.manifests import OWNER, small_manifest

_RUNS = {kind: small_manifest(admission=kind) for kind in ("open", "allow-list", "invite")}
_CLAIMS = range(3, 103)  # of tokens for 1 to 100 authors
_KINDS = {"open": (2,), "allow-list": (1, 2), "invite": (1, 2, *_CLAIMS)}
_LENGTHS = {1: 97, 2: 101, **dict.fromkeys(_CLAIMS, 193)}


def check_statement(data: bytes) -> None:
    """Any bytes under each kind of run; and with the owner's signature where one belongs."""
    for kind, manifest in _RUNS.items():
        _check_split(manifest, data)
        for each in (data, _signed(manifest, data)):
            assert _found(manifest, each) == _expected(kind, manifest, each)


def _check_split(manifest: Manifest, data: bytes) -> None:
    """Statements end to end: all of it, in pieces of the right lengths."""
    try:
        found = StatementCodec(manifest).split_untrusted(data)
    except Reject as reject:
        reason = reason_of(reject)
    else:
        reason = ""
        assert b"".join(found) == data and all(len(each) == _LENGTHS[each[0]] for each in found)
    assert reason in ("", "STATEMENT_FORMAT")


def _signed(manifest: Manifest, data: bytes) -> bytes:
    if data[:1] and data[0] in _CLAIMS:
        return data[:65] + OWNER.sign(b"sfnode/statement" + manifest.run_id + data[:33]) + data[129:]
    return data[:-64] + OWNER.sign(b"sfnode/statement" + manifest.run_id + data[:-64])


def _found(manifest: Manifest, data: bytes) -> str:
    roster = Roster(manifest)
    try:
        statement = roster.add(data)
    except Reject as reject:
        assert len(roster) == 0 and roster.digest() == bytes(16)
        return reason_of(reject)
    assert roster.page(bytes(33), 9) == ([data], True) and statement.key == data[:33]
    return ""


def _expected(kind: str, manifest: Manifest, data: bytes) -> str:
    if data[:1] not in [bytes([number]) for number in _KINDS[kind]] or len(data) != _LENGTHS[data[0]]:
        return "STATEMENT_FORMAT"
    if data[0] == 2 and int.from_bytes(data[33:37], "big") >= manifest.steps:
        return "STATEMENT_FORMAT"
    keys = [data[1:33], data[33:65]] if data[0] in _CLAIMS else [data[1:33]]
    if not all(crypto_core_ed25519_is_valid_point(key) for key in keys):
        return "AUTHOR_KEY"
    said, signature = (data[:33], data[65:129]) if data[0] in _CLAIMS else (data[:-64], data[-64:])
    is_right = _is_signed(OWNER.author, b"sfnode/statement" + manifest.run_id + said, signature)
    if data[0] in _CLAIMS:
        is_right &= _is_signed(data[1:33], b"sfnode/claim/1.." + manifest.run_id + data[1:65], data[129:])
    return "" if is_right else "STATEMENT_SIGNATURE"


def _is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, key)
    except BadSignatureError:
        return False
    return True


def statement_seeds() -> Iterator[bytes]:
    """Each kind, good and with each fault."""
    manifest = _RUNS["invite"]
    good = (admit(manifest, 1), exclude(manifest, 1, 39), claim(manifest, 1, 1), claim(manifest, 1, 1, uses=100))
    yield from good
    for data in good:
        yield data[:-1]
        yield data + b"\0"
        yield data[:-1] + bytes([data[-1] ^ 1])
        yield data[:1] + bytes(32) + data[33:]
    yield good[1][:36] + b"\x28" + good[1][37:]
    yield good[2][:33] + bytes(32) + good[2][65:]
    yield b"\4" + good[0][1:]
    yield b"\x67" + good[3][1:]
    yield b""


TARGETS = {"statement": Target(check=check_statement, seeds=statement_seeds)}
