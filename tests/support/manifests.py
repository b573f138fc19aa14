"""Small manifests for tests."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from protocol.crypto.keys import Signer
from protocol.run.manifest import Manifest, checked

OWNER_SEED = b"owner".ljust(32, b".")
OWNER = Signer(OWNER_SEED)
_METHOD: Final[dict[str, Any]] = {
    "rank": 8,
    "epoch_steps": 16,
    "basis_sha256": "",
    **dict.fromkeys(("core_rows", "noise_rows", "energy_max"), 0),
    "sides": 2,
    "shares": 1,
    "core": "canonical",
    "scalar": "raw",
    "epsilon_exp": -10,
    "directions": 1,
    "local_steps": 1,
    "alpha_exp": -20,
    "quantum_exp": -8,
    "clip": 1000,
}
# What becomes of the other fields with a dense core: a matrix, a transposed one, and 2 x 4 numbers of each.
_DENSE: Final[dict[str, Any]] = {
    "basis_sha256": "ab" * 32,
    "rank": 4,
    "core_rows": 2,
    "noise_rows": 8,
    "energy_max": 20_000,
    "epoch_steps": 1,
    "epsilon_exp": 0,
    "sides": 1,
    "directions": 16,
    "clip": 127,
    "tensors": [
        {"name": "a.weight", "kind": "matrix", "rows": 24, "cols": 16},
        {"name": "b.weight", "kind": "transposed", "rows": 16, "cols": 24},
    ],
}


def _file(name: str, digit: str) -> dict[str, object]:
    return {"name": name, "bytes": 5, "sha256": digit * 64, "pieces": digit * 64}


def manifest_data(**changes: Any) -> dict[str, Any]:
    """Return plain data of a valid manifest. ``changes`` replace fields of it, of its ``admission`` and its ``method``.

    ``admission`` is the kind alone. ``core="dense"`` brings along what a dense core needs.
    """
    is_dense = changes.get("core") == "dense"
    changes = (deepcopy(_DENSE) if is_dense else {}) | changes
    admission = {"kind": changes.pop("admission", "open"), "pow_bits": changes.pop("pow_bits", 0)}
    data: dict[str, Any] = {
        "format": 6,
        "name": "test",
        "owner": OWNER.author.hex(),
        "model": {
            "id": "local:none",
            "revision": "",
            "content": "2" * 64,
            "config": _file("config.json", "3"),
            "weights": [_file("model.safetensors", "0")],
            "tokenizer": [_file("tokenizer.json", "1")],
            "sharing": "peers",
        },
        "tensors": [
            {"name": "a.weight", "kind": "matrix", "rows": 24, "cols": 16},
            {"name": "a.bias", "kind": "vector", "rows": 24, "cols": 0},
            {"name": "b.weight", "kind": "matrix", "rows": 16, "cols": 24},
        ],
        "task": {
            "kind": "classification",
            "completion": "",
            "objective": "loss",
            "template": "{sentence} It was",
            "label_words": [" no", " yes"],
            "data": "private",
            "data_sha256": "",
            "max_tokens": 64,
            "batch_rows": 16,
        },
        "method": dict(_METHOD),
        "schedule": {"kind": "linear", "weight_start": 500, "weight_end": 100},
        "steps": 40,
        "staleness": 1,
        "admission": admission,
        "authors_max": 1024,
    }
    for name, value in changes.items():
        (data if name in data else data["method"])[name] = value
    if is_dense and "task" not in changes:
        words = [f" {number}" for number in range(data["method"]["core_rows"] + 1)]
        data["task"] |= {"batch_rows": data["method"]["directions"], "label_words": words}
    return data


def small_manifest(**changes: Any) -> Manifest:
    """Return a valid manifest with these fields, as of `manifest_data`."""
    return checked(manifest_data(**changes))
