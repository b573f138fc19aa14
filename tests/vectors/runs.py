"""The manifests that envelopes, ledgers and sync vectors are about, and records made for them."""

from __future__ import annotations

from typing import Any

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest, checked
from tests.support.manifests import manifest_data, small_manifest

AUTHOR = Signer(bytes(32))
_TENSOR = {"name": "a", "kind": "matrix", "rows": 4, "cols": 4}
# Two cores of 2 x 2, eight numbers, and three outputs.
_DENSE_TENSORS = [
    {"name": "a", "kind": "matrix", "rows": 3, "cols": 2},
    {"name": "b", "kind": "transposed", "rows": 1, "cols": 3},
]
_DENSE_METHOD = {
    "rank": 2,
    "core": "dense",
    "core_rows": 2,
    "noise_rows": 3,
    "energy_max": 20_000,
    "basis_sha256": "ab" * 32,
    "epoch_steps": 1,
    "sides": 1,
    "directions": 4,
    "epsilon_exp": 0,
    "alpha_exp": -3,
    "clip": 127,
}
_TO_ZERO = {"kind": "linear", "weight_start": 5, "weight_end": 0}


def run(method: dict[str, Any], **fields: Any) -> Manifest:
    """A valid manifest: these parts of ``method`` and these fields replaced."""
    data = manifest_data(**method) | fields
    data["task"]["batch_rows"] = data["method"]["directions"]
    return checked(data)


def dense_run(method: dict[str, Any], **fields: Any) -> Manifest:
    """A valid manifest with a dense core: these parts of ``method`` and these fields replaced."""
    data = manifest_data(**_DENSE_METHOD | method) | {"tensors": _DENSE_TENSORS, "schedule": _TO_ZERO, "steps": 6}
    words = [f" {number}" for number in range(data["method"]["core_rows"] + 1)]
    data["task"] |= {"batch_rows": data["method"]["directions"], "label_words": words}
    return checked(data | fields)


def constant(weight: int) -> dict[str, object]:
    """A schedule of one weight."""
    return {"kind": "constant", "weight_start": weight, "weight_end": weight}


EXAMPLE = small_manifest()  # of SPEC 1.2
NORMALISED = run({"scalar": "normalised", "clip": 127, "directions": 4, "local_steps": 2, "core": "rademacher"})
# Rounds of three steps; no power of two anywhere but the rank. Two epochs.
ROUNDS = run({"directions": 2, "local_steps": 3, "clip": 100, "epoch_steps": 6, "rank": 4}, steps=12)
ROUNDS_RADEMACHER = run(
    {"directions": 2, "local_steps": 3, "clip": 100, "epoch_steps": 6, "rank": 4, "core": "rademacher"}, steps=12
)
# The longest records: 2,156 bytes.
WIDEST = run({"directions": 256, "local_steps": 4, "clip": 32_767, "rank": 1}, authors_max=4, tensors=[_TENSOR])
DENSE = dense_run({})
# Five numbers of 4 or 2 bits: the last byte of a message is not full.
_FIVE = [{"name": str(number), "kind": "matrix", "rows": 3, "cols": 2} for number in range(5)]
OF_4_BITS = dense_run({"clip": 7, "core_rows": 1, "rank": 1, "energy_max": 150}, tensors=_FIVE)
OF_2_BITS = dense_run({"clip": 1, "core_rows": 1, "rank": 1, "energy_max": 4}, tensors=_FIVE)

MANIFESTS = {
    "example": EXAMPLE,
    "normalised": NORMALISED,
    "rounds": ROUNDS,
    "rounds, Rademacher": ROUNDS_RADEMACHER,
    "widest": WIDEST,
    "dense": DENSE,
    "dense, 4 bits": OF_4_BITS,
    "dense, 2 bits": OF_2_BITS,
}


def texts(manifests: dict[str, Manifest]) -> dict[str, str]:
    """The member ``manifests`` of a vector file."""
    return {name: manifest.canonical.decode("ascii") for name, manifest in manifests.items()}


def record(manifest: Manifest, step: int, *scalars: int, author: Signer = AUTHOR) -> bytes:
    """A signed record; nothing but its seed and signature is made to be right."""
    return EnvelopeCodec(manifest).seal(author, step, scalars).record
