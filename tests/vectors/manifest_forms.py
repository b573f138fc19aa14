"""Faults of a manifest's form and signature (SPEC 1.3), made from one that is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from protocol.crypto.hashing import hash_fields
from protocol.crypto.keys import Signer
from protocol.limits import MANIFEST_BYTES_MAX
from tests.support.manifests import OWNER
from tests.vectors.edwards import L

Fault: TypeAlias = tuple[str, bytes, str | None, tuple[bytes, ...]]  # name, bytes, reason, pieces that repeat

_FACE = json.dumps("\N{GRINNING FACE}")[1:-1].encode()


def faults_of_form(good: bytes) -> Iterator[Fault]:
    """``good``: the signed form of a valid manifest."""
    for group in (_sizes, _lines, _no_json, _versions, _spellings, _signatures, _two_faults):
        yield from group(good)


def _resigned(line: bytes) -> bytes:
    """The line with the owner's signature over just these bytes: the spelling is the only fault."""
    signature = OWNER.sign(b"sfnode/manifest/1" + hash_fields("sfnode/run/1", line))
    return line + b"\n" + signature.hex().encode() + b"\n"


def _line(good: bytes) -> bytes:
    return good.split(b"\n")[0]


def _replaced(good: bytes, old: bytes, new: bytes) -> bytes:
    line = _line(good)
    assert line.count(old) == 1, old
    return _resigned(line.replace(old, new))


def _sizes(good: bytes) -> Iterator[Fault]:
    digest = b"0" * 64
    entry = b'{"bytes":1,"name":"' + _FACE * 200 + b'","pieces":"' + digest + b'","sha256":"' + digest + b'"}'
    for size, reason in ((MANIFEST_BYTES_MAX, None), (MANIFEST_BYTES_MAX + 1, "SIZE")):
        yield f"size: {size} bytes", _of_size(good, entry, size), reason, (entry + b",", _FACE, b"x")
    yield "size: a mebibyte of zeros and one more", bytes(MANIFEST_BYTES_MAX + 1), "SIZE", (b"\0",)
    yield "size: a mebibyte of zeros", bytes(MANIFEST_BYTES_MAX), "MANIFEST_FORMAT", (b"\0",)
    yield "size: no bytes", b"", "MANIFEST_FORMAT", ()


def _of_size(good: bytes, entry: bytes, size: int) -> bytes:
    """A valid manifest of exactly so many bytes: many files, and a template that fills the rest."""
    data = json.loads(_line(good))
    data["model"]["weights"] = [json.loads(entry)] * ((size - len(good)) // (len(entry) + 1))
    rest = size - len(_resigned(_dumped(data)))
    data["task"]["template"] = "x" * (len(data["task"]["template"]) + rest)
    filled = _resigned(_dumped(data))
    assert len(filled) == size
    return filled


def _dumped(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def _lines(good: bytes) -> Iterator[Fault]:
    line, signature, _ = good.split(b"\n")
    forms = {
        "one line": line + b"\n",
        "no last line end": good[:-1],
        "an empty line more": good + b"\n",
        "an empty line between": line + b"\n\n" + signature + b"\n",
        "an empty line before": b"\n" + good,
        "carriage return after the JSON": line + b"\r\n" + signature + b"\n",
        "carriage return after the signature": line + b"\n" + signature + b"\r\n",
        "126 digits": line + b"\n" + signature[:-2] + b"\n",
        "130 digits": line + b"\n" + signature + b"00\n",
        "upper-case digits": line + b"\n" + signature.upper() + b"\n",
        "a letter that is no digit": line + b"\n" + b"g" + signature[1:] + b"\n",
        "a digit of two bytes": line + b"\n" + "\u00b2".encode() + signature[2:] + b"\n",
        "spaces between digits": line + b"\n" + signature[:-4] + b"  " + signature[-2:] + b"\n",
        "lines exchanged": signature + b"\n" + line + b"\n",
    }
    for name, data in forms.items():
        yield f"form: {name}", data, "MANIFEST_FORMAT", ()


def _no_json(good: bytes) -> Iterator[Fault]:
    line = _line(good)
    for name, data in {
        "nothing": b"",
        "a word": b"manifest",
        "the last brace missing": line[:-1],
        "a brace more": line + b"}",
        "a comma before the brace": line[:-1] + b",}",
        "single quotes": line.replace(b'"', b"'"),
        "no UTF-8": line.replace(b'"test"', b'"\xff"'),
        "leading zero": line.replace(b'"steps":40', b'"steps":040'),
        "plus sign": line.replace(b'"steps":40', b'"steps":+40'),
        "bare control character": line.replace(b'"test"', b'"te\tst"'),
        "unknown escape": line.replace(b'"test"', b'"\\x74est"'),
        "comment": line + b"//",
    }.items():
        yield f"no JSON: {name}", _resigned(data), "MANIFEST_FORMAT", ()
    # JSON readers differ in how these are refused, but none may take them.
    yield "no JSON: NaN", _replaced(good, b'"steps":40', b'"steps":NaN'), "ANY", ()
    yield "no JSON: Infinity", _replaced(good, b'"steps":40', b'"steps":Infinity'), "ANY", ()
    yield "JSON: 100,000 lists in each other", _resigned(b"[" * 100_000 + b"]" * 100_000), "ANY", (b"[", b"]")
    yield "JSON: a number of 5,000 digits", _replaced(good, b":40,", b":" + b"4" * 5_000 + b","), "ANY", (b"4",)


def _versions(good: bytes) -> Iterator[Fault]:
    for version, reason in {
        b"1": "MANIFEST_FORMAT",
        b"3": "MANIFEST_FORMAT",
        b"5": "MANIFEST_FORMAT",
        b"7": "MANIFEST_FORMAT",
        b"0": "MANIFEST_FORMAT",
        b"-1": "MANIFEST_FORMAT",
        b"18446744073709551617": "MANIFEST_FORMAT",
        b'"6"': "MANIFEST_FIELD",
        b"true": "MANIFEST_FIELD",
        b"1.0": "MANIFEST_FIELD",
        b"6.0": "MANIFEST_FIELD",
        b"null": "MANIFEST_FIELD",
    }.items():
        yield f"version: {version.decode()}", _replaced(good, b'"format":6,', b'"format":%s,' % version), reason, ()
    yield "version: 7 and nothing else", _resigned(b'{"format":7}'), "MANIFEST_FORMAT", ()


def _spellings(good: bytes) -> Iterator[Fault]:
    line = _line(good)
    for name, data in {
        "a space after a colon": line.replace(b'"steps":40', b'"steps": 40'),
        "a space after a comma": line.replace(b',"steps"', b', "steps"'),
        "a space before": b" " + line,
        "a byte order mark": b"\xef\xbb\xbf" + line,
        "keys in another order": line.replace(b'"staleness":1,"steps":40', b'"steps":40,"staleness":1'),
        "a key twice, equal": line.replace(b'"steps":40', b'"steps":40,"steps":40'),
        "a key twice, the first one bad": line.replace(b'"steps":40', b'"steps":-1,"steps":40'),
        "minus zero": line.replace(b'"revision":""', b'"revision":""').replace(b'"alpha_exp":-20', b'"alpha_exp":-0'),
        "a letter as an escape": line.replace(b'"test"', b'"\\u0074est"'),
        "an escaped slash": line.replace(b'"test"', b'"te\\/st"'),
        "a long escape where a short one is": line.replace(b'"test"', b'"te\\u000ast"'),
        "upper-case digits in an escape": line.replace(b'"test"', b'"\\u00E9"'),
        "a letter beyond ASCII as it is": line.replace(b'"test"', '"\u00e9"'.encode()),
        "a character above U+FFFF as it is": line.replace(b'"test"', '"\U0001f600"'.encode()),
        "U+007F as it is": line.replace(b'"test"', b'"\x7f"'),
    }.items():
        assert data != line, name
        yield f"not canonical: {name}", _resigned(data), "MANIFEST_FORMAT", ()


def _signatures(good: bytes) -> Iterator[Fault]:
    line, digits, _ = good.split(b"\n")
    signature, run_id = bytes.fromhex(digits.decode()), hash_fields("sfnode/run/1", line)
    more = int.from_bytes(signature[32:], "little") + L
    stranger = Signer(b"\x07" * 32)
    for name, other in {
        "of zeros": bytes(64),
        "of another key": stranger.sign(b"sfnode/manifest/1" + run_id),
        "of another document": OWNER.sign(b"sfnode/manifest/1" + hash_fields("sfnode/run/1", line + b" ")),
        "without the tag": OWNER.sign(run_id),
        "with another tag": OWNER.sign(b"sfnode/manifest/2" + run_id),
        "over the text, not the run id": OWNER.sign(b"sfnode/manifest/1" + line),
        "over the hash of another domain": OWNER.sign(b"sfnode/manifest/1" + hash_fields("sfnode/seed/1", line)),
        "S + L": signature[:32] + more.to_bytes(32, "little"),
        "a flipped bit": bytes([signature[0] ^ 1]) + signature[1:],
    }.items():
        yield f"signature: {name}", line + b"\n" + other.hex().encode() + b"\n", "MANIFEST_SIGNATURE", ()


def _two_faults(good: bytes) -> Iterator[Fault]:
    """The first rule that is broken names the reason."""
    line, digits, _ = good.split(b"\n")
    unsigned = b"\n" + b"0" * 128 + b"\n"
    bad_field, spaced = line.replace(b'"steps":40', b'"steps":0'), line.replace(b":", b": ", 1)
    yield "order: form before version", b'{"format":7}' + unsigned[:-1], "MANIFEST_FORMAT", ()
    newer = line.replace(b'"format":6', b'"format":7,"new":[]')
    yield "order: version before fields", newer + unsigned, "MANIFEST_FORMAT", ()
    yield "order: fields before canonical form", bad_field.replace(b":", b": ", 1) + unsigned, "MANIFEST_FIELD", ()
    yield "order: fields before signature", bad_field + unsigned, "MANIFEST_FIELD", ()
    yield "order: canonical form before signature", spaced + unsigned, "MANIFEST_FORMAT", ()
    yield "order: a short second line before fields", bad_field + b"\n" + b"0" * 127 + b"\n", "MANIFEST_FORMAT", ()
    cut = b"\n" + b"0" * 64 + b"\n" + b"0" * 63 + b"\n"
    yield "order: a newline among the digits before fields", bad_field + cut, "MANIFEST_FORMAT", ()
    no_text = bad_field.replace(b'"name":"test"', b'"name":"\xff"')
    yield "order: no UTF-8 before fields", no_text + unsigned, "MANIFEST_FORMAT", ()
    yield "order: digits before signature", line + b"\n" + digits[:-1] + b"F\n", "MANIFEST_FORMAT", ()
