"""Targets ``manifest`` and ``manifest-fields``: a run file is refused with a reason, or it is its own encoding."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from nacl.bindings import crypto_sign_open

from protocol import limits
from protocol.crypto.hashing import hash_fields
from protocol.errors import Reject
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import (
    Manifest,
    TensorKind,
    basis_bytes,
    checked,
    coefficient_count,
    coefficient_max,
    decode_run_untrusted,
    sign_manifest,
)
from protocol.run.method import ScalarKind
from protocol.run.model import is_plain_file_name
from protocol.run.task import Objective, TaskKind
from protocol.state.coefficients import CoefficientLayout, view_exp
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import reason_of
from tests.support.manifests import OWNER, manifest_data, small_manifest
from tests.vectors.runs import DENSE

REASONS = frozenset({"SIZE", "MANIFEST_FORMAT", "MANIFEST_FIELD", "MANIFEST_SIGNATURE"})
_NOT_OF_CONTENT = frozenset({"SIZE", "MANIFEST_SIGNATURE"})
_VALUES: tuple[object, ...] = (
    0,
    1,
    -1,
    2,
    3,
    64,
    127,
    128,
    1_024,
    2**16,
    2**20,
    2**24,
    2**64,
    10**300,
    True,
    None,
    0.5,
    "",
    "x",
    "..",
    "a/b",
    "\u00fc\0\u007f",
    "\U0001f600",
    "\ud800",
    "0" * 64,
    "g" * 64,
    "A" * 64,
    "constant",
    "linear",
    "raw",
    "normalised",
    "rademacher",
    "dense",
    "transposed",
    "choice",
    "completion",
    "f1",
    "vector",
    "matrix",
    "private",
    [],
    {},
    [1],
    {"name": "x"},
)


def check_run_file(data: bytes) -> None:
    """Any bytes; and the same bytes as the JSON line of a file that its owner signed."""
    _verdict(data)
    try:
        content = json.loads(data.split(b"\n")[0])
    except (ValueError, RecursionError):
        return
    if isinstance(content, dict):
        _check_signed_content(content)


def _verdict(data: bytes) -> str | None:
    verdicts = []
    for _ in range(2):
        try:
            signed = decode_run_untrusted(data)
        except Reject as reject:
            verdicts.append(reason_of(reject))
            continue
        assert signed.encode() == data
        owner = bytes.fromhex(signed.manifest.owner)
        crypto_sign_open(signed.signature + b"sfnode/manifest/1" + signed.manifest.run_id, owner)
        check_promises(signed.manifest)
        return None
    assert verdicts[0] == verdicts[1] and verdicts[0] in REASONS
    return verdicts[0]


def _check_signed_content(content: dict[str, Any]) -> None:
    """In canonical form and signed, only what it says can be wrong with it."""
    try:
        canonical = json.dumps({**content, "owner": OWNER.author.hex()}, sort_keys=True, separators=(",", ":")).encode()
        json.loads(canonical)  # NaN and the like
    except (ValueError, RecursionError):
        return
    run_id = hash_fields("sfnode/run/1", canonical)
    signature = OWNER.sign(b"sfnode/manifest/1" + run_id).hex().encode()
    verdict = _verdict(canonical + b"\n" + signature + b"\n")
    assert len(canonical) > limits.MANIFEST_BYTES_MAX or verdict not in _NOT_OF_CONTENT, verdict


def check_promises(manifest: Manifest) -> None:
    """What the rest of the code takes for granted of a manifest that was accepted."""
    method = manifest.method
    assert coefficient_count(manifest) <= limits.COEFFICIENTS_MAX
    assert _largest_of_view(manifest) < 2**53
    assert all(0 <= manifest.weight(step) <= limits.WEIGHT_MAX for step in (0, manifest.steps // 2, manifest.steps - 1))
    assert method.rank.bit_count() == 1 and method.blocks * method.shares == method.directions
    assert manifest.task.batch_rows % method.blocks == 0
    _check_promises_of_kinds(manifest)
    assert manifest.steps % method.local_steps == method.epoch_steps % method.local_steps == 0
    assert EnvelopeCodec(manifest).record_bytes == 108 + _scalar_bytes(manifest)
    assert CoefficientLayout(manifest).size <= limits.COEFFICIENTS_MAX
    assert all(is_plain_file_name(entry.name) for entry in manifest.model.files)
    assert all(-127 <= view_exp(manifest, index) <= 0 for index in range(min(4, len(manifest.tensors))))
    assert manifest.canonical.isascii() and manifest == checked(json.loads(manifest.canonical))


def _largest_of_view(manifest: Manifest) -> int:
    """SPEC 4.5, 4.7."""
    method, schedule = manifest.method, manifest.schedule
    if not method.is_dense:
        return int(coefficient_max(manifest) * method.rank**2)
    quotient_max = max(schedule.weight_start, schedule.weight_end) * 127
    return int(manifest.steps * quotient_max * method.core_rows * method.rank * 127**2)


def _scalar_bytes(manifest: Manifest) -> int:
    method = manifest.method
    if not method.is_dense:
        return int(2 * method.directions * method.local_steps)
    return int(2 + len(manifest.tensors) * method.core_rows * method.rank)


def _check_promises_of_kinds(manifest: Manifest) -> None:
    method, task = manifest.method, manifest.task
    assert (len(task.label_words) >= 2) is (task.completion == "") is (task.kind is TaskKind.CLASSIFICATION)
    assert (method.core_rows > 0) is (method.noise_rows > 0) is (method.energy_max > 0) is method.is_dense
    if method.is_dense:
        assert len(bytes.fromhex(method.basis_sha256)) == 32 and basis_bytes(manifest) <= limits.BASIS_BYTES_MAX
        assert (method.scalar, method.clip) == (ScalarKind.RAW, 127)
        assert method.epoch_steps == method.sides == method.shares == 1 and method.epsilon_exp == 0
        assert method.directions == task.batch_rows and task.objective is Objective.LOSS
        outputs = {each.cols if each.kind is TensorKind.TRANSPOSED else each.rows for each in manifest.tensors}
        assert all(tensor.cols for tensor in manifest.tensors) and len(outputs) == 1
    else:
        assert method.basis_sha256 == ""
        assert all(tensor.kind is not TensorKind.TRANSPOSED for tensor in manifest.tensors)
    assert task.kind is not TaskKind.COMPLETION or task.objective is Objective.LOSS
    assert task.kind is not TaskKind.REWARD or method.is_dense


def check_fields(data: bytes) -> None:
    """A valid manifest with a few fields replaced, removed or added anywhere, signed by its owner."""
    choices = Choices(data)
    content = copy.deepcopy(manifest_data())
    for _ in range(1 + choices.below(4)):
        _disturb(content, choices)
    _check_signed_content(content)


def _disturb(content: dict[str, Any], choices: Choices) -> None:
    """Walk to some place in the tree and change what is there."""
    place: Any = content
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = choices.pick(keys)
        if not isinstance(place[key], dict | list) or choices.one_in(8):
            break
        place = place[key]
    how = choices.byte() % 8
    if how == 6:
        del place[key]
    elif how == 7 and isinstance(place, dict):
        place["x"] = copy.deepcopy(choices.pick(_VALUES))
    elif how == 5 and isinstance(place[key], int):
        place[key] = choices.below(1 << 16) - 64
    else:
        place[key] = copy.deepcopy(choices.pick(_VALUES))


def run_file_seeds() -> Iterator[bytes]:
    """Valid files of different methods; and the faults that are easiest to miss."""
    whole = sign_manifest(small_manifest(), OWNER).encode()
    yield whole
    yield sign_manifest(small_manifest(scalar="normalised", directions=4, clip=127, core="rademacher"), OWNER).encode()
    yield sign_manifest(small_manifest(sides=1, directions=4, shares=2), OWNER).encode()
    yield sign_manifest(DENSE, OWNER).encode()
    line, signature, _ = whole.split(b"\n")
    yield whole[:-1]
    yield line + b"\n" + b"00" * 64 + b"\n"
    yield line + b"\n" + signature.upper() + b"\n"
    yield line.replace(b'"format":6', b'"format":7') + b"\n" + signature + b"\n"
    yield line.replace(b'"name":"test"', b'"name":"\\u0074est"') + b"\n" + signature + b"\n"
    yield line.replace(b'"format":6', b'"format":6,"format":6') + b"\n" + signature + b"\n"
    yield line.replace(b'"steps":40', b'"steps":4e1') + b"\n" + signature + b"\n"
    yield b'{"format":6}\n' + signature + b"\n"
    yield b"[" * 900 + b"\n" + signature + b"\n"


def field_seeds() -> Iterator[bytes]:
    """Walks into every part of the tree."""
    for number in range(48):
        yield bytes((number * 11 + index * (number + 3)) % 256 for index in range(16))


TARGETS = {
    "manifest": Target(check=check_run_file, seeds=run_file_seeds),
    "manifest-fields": Target(check=check_fields, seeds=field_seeds),
}
