"""Keys with work in them, found by adding points instead of deriving each key from a seed."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

from protocol.crypto.hashing import Author
from protocol.crypto.keys import KEY_BYTES, Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.run.admission import AdmissionKind, AdmissionSpec, has_work
from protocol.run.manifest import Manifest
from sfnode.keys import TRIES_AT_ONCE
from tests import REPOSITORY
from tests.attacks.outcome import Outcome
from tests.support.manifests import small_manifest

_PAGE: Final = REPOSITORY / "docs" / "decisions" / "0019-the-price-of-a-key.md"
_FACTOR: Final = 3.0  # how far another machine may be from ours
_SPEED_S: Final = 0.5
_NEVER: Final = AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=200)
_ONE: Final = (1).to_bytes(32, "little")


def cheap_keys(is_short: bool) -> Outcome:
    """Find keys with work by one point addition each, and sign with them: what does a made-up author cost?"""
    seconds, bits = (1.0, 8) if is_short else (5.0, 14)
    by_seed_us = _cost_us(lambda: _try_seeds(_NEVER, bytes(32), TRIES_AT_ONCE), TRIES_AT_ONCE, seconds)
    by_addition_us = _cost_us(lambda: _add_points(_NEVER, bytes(32), TRIES_AT_ONCE), TRIES_AT_ONCE, seconds)
    manifest = replace(small_manifest(), admission=AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=bits))
    is_author = _counts(manifest)
    told_seed_us, told_addition_us = _told_us("a seed for each key"), _told_us("one addition for each key, in Python")
    is_true = all(
        told / _FACTOR <= measured <= told * _FACTOR
        for told, measured in ((told_seed_us, by_seed_us), (told_addition_us, by_addition_us))
    )
    return Outcome(
        before=f"a node looks for its own key: {by_seed_us:.1f} us a try (docs: {told_seed_us:g})",
        during=f"by addition, in Python: {by_addition_us:.1f} us a try (docs: {told_addition_us:g})",
        after=f"a key of {bits} bits found like that {'is an author' if is_author else 'is refused'}",
        attacker=f"{_told_us('one addition for each key, in C'):g} us a try in C, says the page",
        bound="the documents say what a key costs an attacker, within a factor of 3",
        is_held=is_true and is_author,
    )


def slowness() -> float:
    """Return how many times as long as on the machine of the documents computing takes here; 1 on one that is faster.

    What an attack may cost in seconds of a core was measured there. The unit is a try for a key, in Python.
    """
    here_us = _cost_us(lambda: _add_points(_NEVER, bytes(32), TRIES_AT_ONCE), TRIES_AT_ONCE, _SPEED_S)
    return max(1.0, here_us / _told_us("one addition for each key, in Python"))


def _told_us(way: str) -> float:
    """What the page says that a try costs."""
    found = re.search(rf"^\| {re.escape(way)} \| ([\d.]+) us", _PAGE.read_text("utf-8"), re.MULTILINE)
    assert found is not None, way
    return float(found[1])


def _cost_us(run: Callable[[], object], tries: int, seconds: float) -> float:
    """Processor time of a try."""
    done, started_s = 0, time.process_time()
    while time.process_time() - started_s < seconds:
        run()
        done += tries
    return 1e6 * (time.process_time() - started_s) / done


def _try_seeds(spec: AdmissionSpec, run_id: bytes, tries: int) -> None:
    """Try as many keys as `find_seed` does at once, and in its way."""
    for _ in range(tries):
        has_work(spec, run_id, Signer(secrets.token_bytes(KEY_BYTES)).author)


def _add_points(spec: AdmissionSpec, run_id: bytes, tries: int) -> bytes | None:
    """Scalar of a key with the work: a random start, and the base point added again and again."""
    scalar = crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
    point = crypto_scalarmult_ed25519_base_noclamp(scalar)
    base = crypto_scalarmult_ed25519_base_noclamp(_ONE)
    for number in range(tries):
        if has_work(spec, run_id, point):
            return crypto_core_ed25519_scalar_add(scalar, number.to_bytes(32, "little"))
        point = crypto_core_ed25519_add(point, base)
    return None


class _ScalarSigner(Signer):
    """Signs with a scalar that no seed belongs to; what it signs verifies like any other signature."""

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar
        self.author = Author(crypto_scalarmult_ed25519_base_noclamp(scalar))

    def sign(self, message: bytes) -> bytes:
        nonce = crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
        commitment = crypto_scalarmult_ed25519_base_noclamp(nonce)
        challenge = crypto_core_ed25519_scalar_reduce(hashlib.sha512(commitment + self.author + message).digest())
        product = crypto_core_ed25519_scalar_mul(challenge, self._scalar)
        return commitment + crypto_core_ed25519_scalar_add(nonce, product)


def _counts(manifest: Manifest) -> bool:
    """Whether an update by a key found like that passes the one door."""
    scalar = None
    while scalar is None:
        scalar = _add_points(manifest.admission, manifest.run_id, TRIES_AT_ONCE)
    record = EnvelopeCodec(manifest).seal(_ScalarSigner(scalar), 0, (1,) * manifest.method.scalars).record
    return Ledger(manifest).add(record)[1] is None
