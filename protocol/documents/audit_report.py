"""An auditor's finding about one message: a small signed document that anyone can check by measuring again (SPEC 9.3).

On public data, everybody can repeat the measurement behind a message: all know its seed, its examples and, nearly, the
state. A report contains the auditor's measurement and the audited record, so that readers need not have it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from protocol import limits
from protocol.crypto import SIGNATURE_BYTES, Signer, is_author_key, is_signed
from protocol.errors import Reject, RejectReason
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest
from protocol.schema import Bound, Hex32, Malformed, canonical_json, from_json_untrusted, is_hex

REPORT_BYTES_MAX = 1 << 16  # of a dense message twice that
_DOMAIN = b"sfnode/audit/1"
_Scalar = Annotated[int, Bound(-limits.CLIP_MAX, limits.CLIP_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The second measurement of one message's claim.

    Attributes:
        run_id: in hex.
        auditor: Ed25519 key in hex that signs the report.
        record: of the audited message, in hex, as it is in the ledger.
        measured: the scalars that the auditor got for the same seed and examples, in the message's order; of a dense
            message the numbers alone, for as many rows.
        tolerance_mille: 1,000 times the deviation that the auditor allowed.
    """

    run_id: Hex32
    auditor: Hex32
    record: Annotated[str, Bound(2, 2 * limits.FRAME_BYTES_MAX)]
    measured: Annotated[tuple[_Scalar, ...], Bound(1, limits.DENSE_NUMBERS_MAX)]
    tolerance_mille: Annotated[int, Bound(0, 1 << 31)]


def deviation(claimed: Sequence[int], measured: Sequence[int]) -> float:
    """Return the length of the difference relative to the measurement, 0 ... infinity.

    0: equal. 1: all zeros claimed. About 1.4: unrelated scalars of the right size. 2: the opposite. A measurement
    shorter than one quantum per scalar counts as that long, because rounding leaves no finer resolution.
    """
    distance = math.dist(claimed, measured)
    return distance / max(math.hypot(*measured), math.sqrt(len(measured)))


def make_report(
    manifest: Manifest, signer: Signer, envelope: Envelope, measured: Sequence[int], tolerance: float
) -> tuple[AuditReport, bytes]:
    """Make a report and its signed form: canonical JSON, newline, signature in hex, newline."""
    report = AuditReport(
        run_id=manifest.run_id.hex(),
        auditor=signer.author.hex(),
        record=envelope.record.hex(),
        measured=tuple(measured),
        tolerance_mille=math.floor(1_000 * tolerance),
    )
    line = canonical_json(report)
    return report, line + b"\n" + signer.sign(_DOMAIN + line).hex().encode("ascii") + b"\n"


def decode_report_untrusted(manifest: Manifest, data: bytes) -> tuple[AuditReport, Envelope]:
    """Decode a report about ``manifest``'s run and the audited message; verify both signatures.

    Only a new measurement can show whether the report's measurement is true.
    Reject: malformed, of another run, or a wrong signature.
    """
    bytes_max = REPORT_BYTES_MAX << manifest.method.is_dense
    if len(data) > bytes_max:
        raise Reject(RejectReason.SIZE, f"an audit report of {len(data)} bytes, at most {bytes_max}")
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2] or not is_hex(lines[1].decode("latin-1"), 2 * SIGNATURE_BYTES):
        raise Reject(RejectReason.AUDIT_FORMAT, "not a line of JSON and a line of signature")
    try:
        report = from_json_untrusted(AuditReport, lines[0], "report")
    except Malformed as error:
        raise Reject(RejectReason.AUDIT_FORMAT, f"the first line is not an audit report: {error}") from None
    texts = (report.run_id, report.auditor)
    if not all(is_hex(text, 64) for text in texts) or not is_hex(report.record, len(report.record) // 2 * 2):
        raise Reject(RejectReason.AUDIT_FORMAT, "run_id, auditor or record is not lower-case hexadecimal")
    if canonical_json(report) != lines[0]:
        raise Reject(RejectReason.AUDIT_FORMAT, "the JSON is not in canonical form")
    if report.run_id != manifest.run_id.hex():
        raise Reject(RejectReason.RUN_ID, "the report is about another run")
    auditor, signature = bytes.fromhex(report.auditor), bytes.fromhex(lines[1].decode("ascii"))
    if not is_author_key(auditor) or not is_signed(auditor, _DOMAIN + lines[0], signature):
        raise Reject(RejectReason.SIGNATURE, "the auditor's signature does not fit: the report was changed")
    codec = EnvelopeCodec(manifest)
    envelope = codec.decode_untrusted(bytes.fromhex(report.record))
    codec.check_signed(envelope)
    if len(report.measured) != len(envelope.measured):
        raise Reject(RejectReason.AUDIT_FORMAT, "another number of scalars was measured than the message has")
    return report, envelope
