"""Vectors of audit reports (SPEC 9.3): their bytes, and when a claim lies outside what the auditor allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from protocol import limits
from protocol.documents.audit_report import decode_report_untrusted, deviation, make_report
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.method import ScalarKind
from protocol.schema import to_plain
from sfnode.worker.audit_case import directions_claimed
from tests.support.ledgers import signer
from tests.vectors import edwards
from tests.vectors.notation import Case, Document, case, compact, document, judged
from tests.vectors.runs import DENSE, EXAMPLE, run, texts

_RUN = run({"directions": 2})
_RUNS = {"example": EXAMPLE, "two directions": _RUN, "dense": DENSE}
_AUDITOR = signer(3)
_ENVELOPE = EnvelopeCodec(_RUN).seal(signer(1), 5, (300, -7))
_DENSE_ENVELOPE = EnvelopeCodec(DENSE).seal(signer(1), 5, (3, 9, -8, 7, -6, 5, -4, 3, -2))
_SMALL_ORDER = "01" + "00" * 31


def audits() -> Document:
    """audits.json"""
    return document(
        "Audit reports: SPEC 9.3", [*_good(), *_refused(), *_dense(), *_mismatches(), *_shown()], manifests=texts(_RUNS)
    )


def _report(**changes: object) -> bytes:
    """A good report with these fields changed, signed by the auditor."""
    report, _ = make_report(_RUN, _AUDITOR, _ENVELOPE, (290, 4), 0.05)
    return _signed(json.dumps(to_plain(report, as_rows=False) | changes, sort_keys=True, separators=(",", ":")))


def _signed(line: str) -> bytes:
    data = line.encode("utf-8")
    return data + b"\n" + _AUDITOR.sign(b"sfnode/audit/1" + data).hex().encode("ascii") + b"\n"


def _is_mismatch(claimed: Sequence[int], measured: Sequence[int], tolerance_mille: int) -> bool:
    return deviation(claimed, measured) > tolerance_mille / 1_000


def _decoded(name: str, data: bytes, expect: str | None, manifest: str = "two directions") -> Case:
    def members() -> dict[str, object]:
        report, envelope = decode_report_untrusted(_RUNS[manifest], data)
        return {
            "auditor": report.auditor,
            "author": envelope.author.hex(),
            "step": envelope.step,
            "scalars": [*envelope.scalars, *envelope.numbers.tolist()],
            "measured": list(report.measured),
            "is_mismatch": _is_mismatch(envelope.measured, report.measured, report.tolerance_mille),
        }

    found = judged(members)
    assert found["reason"] == expect, (name, found)
    written = compact(data, b" ", b"0,", b"0", b"[", b"9")
    return case(f"decode: {name}", "decode", {"manifest": manifest, "report": written}, found)


def _good() -> Iterator[Case]:
    chosen: dict[str, dict[str, object]] = {
        "a mismatch": {},
        "within the tolerance": {"tolerance_mille": 2_000},
        "as claimed": {"measured": [300, -7]},
        "the least and the largest scalar": {"measured": [-limits.CLIP_MAX, limits.CLIP_MAX]},
        "the largest tolerance": {"tolerance_mille": 1 << 31},
        "tolerance 0": {"tolerance_mille": 0},
    }
    for name, changes in chosen.items():
        yield _decoded(name, _report(**changes), None)


def _refused() -> Iterator[Case]:
    good, record = _report(), _ENVELOPE.record.hex()
    line = good.split(b"\n")[0].decode("ascii")
    size = 1 << 16
    forms: dict[str, bytes] = {
        "nothing": b"",
        "65,536 bytes of nothing": b" " * size,
        "one line": good[:-130],
        "no last newline": good[:-1],
        "three lines": good + b"\n",
        "a signature of capital letters": line.encode() + b"\n" + b"A" * 128 + b"\n",
        "a signature of 126 digits": good[:-3] + b"\n",
        "no JSON": _signed("x"),
        "deep nesting": _signed("[" * 900),
        "a list": _signed("[]"),
        "a blank": _signed(line.replace(",", ", ", 1)),
        "fields in another order": _signed(json.dumps(dict(reversed(json.loads(line).items())), separators=(",", ":"))),
        "a field twice": _signed(line.replace('"measured"', '"measured":[1,2],"measured"')),
        "an escape": _signed(line.replace("auditor", "\\u0061uditor")),
    }
    for name, data in forms.items():
        yield _decoded(name, data, "AUDIT_FORMAT")
    yield _decoded("65,537 bytes", b" " * (size + 1), "SIZE")
    fields: dict[str, dict[str, object]] = {
        "a field more": {"more": 1},
        "run_id in capitals": {"run_id": _RUN.run_id.hex().upper()},
        "run_id of 62 digits": {"run_id": "0" * 62},
        "auditor of no digits": {"auditor": "g" * 64},
        "auditor as a number": {"auditor": 1},
        "record of no bytes": {"record": ""},
        "record of half a byte": {"record": record[:-1]},
        "record in capitals": {"record": record.upper()},
        "measured as a text": {"measured": "290"},
        "no scalar": {"measured": []},
        "16,385 scalars": {"measured": [0] * 16_385},
        "a scalar above int16's": {"measured": [290, limits.CLIP_MAX + 1]},
        "a scalar below": {"measured": [-limits.CLIP_MAX - 1, 4]},
        "a fraction": {"measured": [290.5, 4]},
        "a fraction that is whole": {"measured": [290.0, 4]},
        "a boolean": {"measured": [True, 4]},
        "tolerance -1": {"tolerance_mille": -1},
        "tolerance over 2^31": {"tolerance_mille": (1 << 31) + 1},
        "tolerance as a text": {"tolerance_mille": "5"},
        "one scalar measured, two claimed": {"measured": [290]},
        "three scalars measured": {"measured": [290, 4, 4]},
    }
    for name, changes in fields.items():
        yield _decoded(name, _report(**changes), "AUDIT_FORMAT")
    without = {name: value for name, value in json.loads(line).items() if name != "tolerance_mille"}
    yield _decoded("a field less", _signed(json.dumps(without, sort_keys=True, separators=(",", ":"))), "AUDIT_FORMAT")
    yield from _signatures(good, record)


def _signatures(good: bytes, record: str) -> Iterator[Case]:
    """What lies behind the form, in the order of the rules."""
    other = good.split(b"\n")[0] + b"\n" + b"0" * 128 + b"\n"
    yield _decoded("of another run", good, "RUN_ID", "example")
    yield _decoded("order: run before signature", other, "RUN_ID", "example")
    yield _decoded("a signature of zeros", other, "SIGNATURE")
    yield _decoded("another auditor", _report(auditor=signer(4).author.hex()), "SIGNATURE")
    yield _decoded("an auditor without a valid key", _report(auditor=_SMALL_ORDER), "SIGNATURE")
    mixed = json.dumps(json.loads(good.split(b"\n")[0]) | {"auditor": edwards.mixed_key().hex()}, separators=(",", ":"))
    data = mixed.encode() + b"\n" + edwards.sign_mixed(b"sfnode/audit/1" + mixed.encode()).hex().encode() + b"\n"
    yield _decoded("an auditor's key of mixed order, the signature alone would pass", data, "SIGNATURE")
    flipped = record[:-1] + ("0" if record[-1] != "0" else "1")
    yield _decoded("a record that nobody signed", _report(record=flipped), "SIGNATURE")
    yield _decoded("a record of another length", _report(record=record[:-2]), "SIZE")
    elsewhere = EnvelopeCodec(_RUN).seal(signer(1), 40, (300, -7)).record
    yield _decoded("a record of a step beyond the end", _report(record=elsewhere.hex()), "STEP_RANGE")
    yield _decoded("order: record before scalars", _report(record=flipped, measured=[1]), "SIGNATURE")


def _dense() -> Iterator[Case]:
    """A dense message's rows are no measurement; its reports may be twice as long."""
    numbers = _DENSE_ENVELOPE.measured
    for name, measured, reason in (
        ("as claimed", numbers, None),
        ("a mismatch", numbers[::-1], None),
        ("the rows, too", _DENSE_ENVELOPE.scalars + numbers, "AUDIT_FORMAT"),
        ("a number less", numbers[1:], "AUDIT_FORMAT"),
    ):
        _, data = make_report(DENSE, _AUDITOR, _DENSE_ENVELOPE, measured, 0.05)
        yield _decoded(f"dense: {name}", data, reason, "dense")
    yield _decoded("dense: 131,072 bytes of nothing", b" " * (1 << 17), "AUDIT_FORMAT", "dense")
    yield _decoded("dense: 131,073 bytes", b" " * ((1 << 17) + 1), "SIZE", "dense")


def _mismatches() -> Iterator[Case]:
    """||q - m|| / max(||m||, sqrt(n)); at the tolerance itself numbers that are exact."""
    for claimed, measured, tolerance in (
        ([3, 4], [3, 4], 0),
        ([3, 5], [3, 4], 0),
        ([0, 0], [3, 4], 1_000),
        ([0, 0], [3, 4], 999),
        ([-3, -4], [3, 4], 2_000),
        ([-3, -4], [3, 4], 1_999),
        ([2, 0, 0, 0], [0, 0, 0, 0], 1_000),
        ([2, 0, 0, 0], [0, 0, 0, 0], 999),
        ([0, 0, 0, 0], [1, 0, 0, 0], 500),
        ([0, 0, 0, 0], [1, 0, 0, 0], 499),
        ([0, 0, 0, 0], [0, 4, 0, 0], 1_000),
        ([5], [-5], 2_000),
        ([32_767], [-32_767], 1_999),
    ):
        given = {"claimed": claimed, "measured": measured, "tolerance_mille": tolerance}
        name = f"mismatch: {claimed} for {measured}, {tolerance} of 1000"
        yield case(name, "mismatch", given, {"is_mismatch": _is_mismatch(claimed, measured, tolerance)})


def _shown() -> Iterator[Case]:
    """How many directions an auditor measures: by the last scalar that is not zero, and by the energy."""
    for name, scalar, shares, scalars in (
        ("raw", "raw", 1, (90, 90, 0, 0)),
        ("by the last scalar", "normalised", 1, (32, 0, 32, 0)),
        ("the last two are zero by rounding", "normalised", 1, (45, 45, 0, 0)),
        ("2,560 is two and a half times 1,024", "normalised", 1, (48, 16, 0, 0)),
        ("2,559 is less", "normalised", 1, (47, 1, 0, 0)),
        ("with a scalar that is clipped", "normalised", 1, (127, 0, 0, 0)),
        ("in whole blocks", "normalised", 2, (55, 0, 0, 0)),
        ("at most all", "normalised", 2, (100, 0, 0, 0)),
        ("the most of two local steps", "normalised", 1, (32, 0, 0, 0, 64, 1, 0, 0)),
    ):
        chosen = replace(EXAMPLE.method, directions=4, shares=shares, scalar=ScalarKind(scalar), clip=127)
        given = {"directions": 4, "shares": shares, "scalar": scalar, "scalars": list(scalars)}
        yield case(f"shown: {name}", "shown", given, {"directions": directions_claimed(chosen, scalars)})
