"""Target ``audit``: a report is refused with a reason, or both signatures in it verify and it is its own encoding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nacl.bindings import crypto_sign_open

from protocol.documents.audit_report import decode_report_untrusted, make_report
from protocol.errors import Reject
from protocol.ledger.envelope import EnvelopeCodec
from protocol.schema import to_plain
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import signer
from tests.support.manifests import small_manifest

MANIFEST = small_manifest(directions=2)
AUDITOR = signer(3)
_CODEC = EnvelopeCodec(MANIFEST)
_ENVELOPE = _CODEC.seal(signer(1), 5, (300, -7))


def check_report(data: bytes) -> None:
    """Any bytes; and their first line as it is, signed by an auditor."""
    _verdict(data)
    line = data.split(b"\n")[0]
    signature = AUDITOR.sign(b"sfnode/audit/1" + line).hex().encode()
    _verdict(line + b"\n" + signature + b"\n")


def _verdict(data: bytes) -> None:
    try:
        report, envelope = decode_report_untrusted(MANIFEST, data)
    except Reject as reject:
        reason_of(reject)
        return
    line, signature = data.split(b"\n")[:2]
    assert json.dumps(to_plain(report, as_rows=False), sort_keys=True, separators=(",", ":")).encode() == line
    crypto_sign_open(bytes.fromhex(signature.decode()) + b"sfnode/audit/1" + line, bytes.fromhex(report.auditor))
    crypto_sign_open(
        envelope.record[-64:] + b"sfnode/envelope1" + MANIFEST.run_id + envelope.record[:-64], envelope.author
    )
    assert report.run_id == MANIFEST.run_id.hex() and envelope.record.hex() == report.record
    assert len(report.measured) == len(envelope.scalars)


def report_seeds() -> Iterator[bytes]:
    """A good report, and each part of it changed by an auditor who signs what they say."""
    report, whole = make_report(MANIFEST, AUDITOR, _ENVELOPE, (290, 4), 0.5)
    yield whole
    plain = to_plain(report, as_rows=False)
    changes: tuple[dict[str, Any], ...] = (
        {"run_id": "0" * 64},
        {"run_id": "G" * 64},
        {"auditor": "00" * 32},
        {"record": report.record[:-2]},
        {"record": report.record[:-1]},
        {"record": report.record[:-2] + "00"},
        {"measured": [290, 5]},
        {"measured": [290]},
        {"measured": [290.5, 4]},
        {"tolerance_mille": -1},
        {"more": 1},
    )
    for change in changes:
        line = json.dumps({**plain, **change}, sort_keys=True, separators=(",", ":")).encode()
        yield line + b"\n" + AUDITOR.sign(b"sfnode/audit/1" + line).hex().encode() + b"\n"
    forged = replace(_ENVELOPE, record=_ENVELOPE.record[:-1] + bytes([_ENVELOPE.record[-1] ^ 1]))
    yield make_report(MANIFEST, AUDITOR, forged, (290, 4), 0.5)[1]
    yield whole[:-1]
    yield whole.replace(b'":', b'": ', 1)
    yield whole.split(b"\n")[0] + b"\n" + b"0" * 128 + b"\n"
    yield b"{}\n" + b"0" * 128 + b"\n"
    yield b"[" * 900 + b"\n" + b"0" * 128 + b"\n"


TARGETS = {"audit": Target(check=check_report, seeds=report_seeds)}
