"""Targets ``snapshot``, ``attestation``: any bytes get the verdict of a literal reading of SPEC 9.5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.exceptions import BadSignatureError

from protocol.crypto.hashing import Digest
from protocol.errors import Reject
from protocol.state.snapshot import AttestationCodec, Snapshot, decode_snapshot_untrusted, encode_snapshot
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import signer
from tests.support.manifests import small_manifest

_TENSORS = [{"name": "a", "kind": "vector", "rows": 1, "cols": 0}]
_RUN = small_manifest(rank=2, epoch_steps=768, tensors=_TENSORS, steps=2_304)
_HEAD = b"sfnode/snapshot1" + _RUN.run_id
_ATTESTED = b"sfnode/attested1" + _RUN.run_id


def check_snapshot(data: bytes) -> None:
    """The bytes, and the same after a good beginning."""
    for each in (data, _HEAD + data):
        try:
            found = encode_snapshot(_RUN, decode_snapshot_untrusted(_RUN, each))
        except Reject as reject:
            reason = reason_of(reject)
        else:
            reason = ""
            assert found == each
        assert reason == _expected(each)


def _expected(data: bytes) -> str:
    if len(data) < 92 or data[:16] != _HEAD[:16]:
        return "SNAPSHOT_FORMAT"
    if data[16:48] != _RUN.run_id:
        return "RUN_ID"
    step, rest, last = int.from_bytes(data[48:52], "big"), data[92:], -1
    if step not in (1_024, 2_048):
        return "SNAPSHOT_FORMAT"
    while rest:
        epoch, width = int.from_bytes(rest[:4], "big"), rest[4] if len(rest) > 4 else 0
        if width not in (1, 2, 4, 8) or len(rest) < 5 + 2 * width:
            return "SNAPSHOT_FORMAT"
        values = [int.from_bytes(rest[5 + width * i : 5 + width * (i + 1)], "little", signed=True) for i in range(2)]
        is_least = width == 1 or any(not -(1 << 4 * width - 1) <= value < 1 << 4 * width - 1 for value in values)
        if not (is_least and any(values) and last < epoch and epoch * 768 < step):
            return "SNAPSHOT_FORMAT"
        last, rest = epoch, rest[5 + 2 * width :]
    return ""


def snapshot_seeds() -> Iterator[bytes]:
    """Without and with epochs of every width; and each fault."""
    empty = Snapshot(step=1_024, digest=Digest(bytes(32)), slots=0, epochs={})
    yield encode_snapshot(_RUN, empty)
    for number, value in enumerate((1, -129, 1 << 20, -(1 << 40))):
        epochs = {0: np.array([0, value]), 1 + number % 2: np.array([value, 0])}
        good = encode_snapshot(_RUN, replace(empty, step=2_048, epochs=epochs))
        yield from (good, good[48:], good[:-1], good + b"\0", good[:95] + b"\3" + good[96:])
    yield from (b"", good[:16], good[:40] + b"\0" + good[41:], good[:50] + b"\1" + good[51:])


def check_attestation(data: bytes) -> None:
    """The bytes; and with a signature that fits, where there is room for one."""
    codec = AttestationCodec(_RUN)
    body = signer(1).author + data[32:72]
    for each in (data, body + signer(1).sign(_ATTESTED + body)):
        try:
            codec.check_signed(codec.decode_untrusted(each))
        except Reject as reject:
            reason = reason_of(reject)
        else:
            reason = ""
        assert reason == _expected_of_attestation(each)


def _expected_of_attestation(data: bytes) -> str:
    step, size = int.from_bytes(data[32:36], "big"), int.from_bytes(data[36:40], "big")
    if len(data) != 136 or step not in (1_024, 2_048) or not 92 <= size <= 1 << 26:
        return "SNAPSHOT_FORMAT"
    if not crypto_core_ed25519_is_valid_point(data[:32]):
        return "AUTHOR_KEY"
    try:
        crypto_sign_open(data[72:] + _ATTESTED + data[:72], data[:32])
    except BadSignatureError:
        return "SIGNATURE"
    return ""


def attestation_seeds() -> Iterator[bytes]:
    """A good one, and each fault."""
    good = AttestationCodec(_RUN).attest(signer(1), 1_024, 92, bytes(32)).data
    yield from (good, good[:-1], good + b"\0", good[:-1] + bytes([good[-1] ^ 1]), bytes(32) + good[32:], b"")
    yield from (good[:35] + b"\1" + good[36:], good[:36] + bytes(4) + good[40:], good[:36] + b"\5" + good[37:])


TARGETS = {
    "snapshot": Target(check=check_snapshot, seeds=snapshot_seeds),
    "attestation": Target(check=check_attestation, seeds=attestation_seeds),
}
