"""Statements and the runs that they are about, for tests."""

from __future__ import annotations

from functools import lru_cache

from protocol.crypto.keys import Signer
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import Manifest, checked
from tests.support.ledgers import signer
from tests.support.manifests import OWNER, manifest_data


@lru_cache
def run_with(kind: str, *, pow_bits: int = 0, steps: int = 40, authors_max: int = 1_024) -> Manifest:
    """A small run with that admission."""
    fields = {"admission": {"kind": kind, "pow_bits": pow_bits}, "steps": steps, "authors_max": authors_max}
    return checked(manifest_data() | fields)


@lru_cache
def published_run(kind: str) -> Manifest:
    """The same with a published basis, of an arbitrary hash, and three epochs."""
    plain = manifest_data(basis="published", basis_sha256="ab" * 32)
    return checked(plain | {"admission": {"kind": kind, "pow_bits": 0}, "steps": 3 * plain["method"]["epoch_steps"]})


def admit(manifest: Manifest, author: int) -> bytes:
    """The owner admits author number ``author`` (:func:`ledgers.signer`)."""
    return StatementCodec(manifest).admit(OWNER, signer(author).author)


def exclude(manifest: Manifest, author: int, from_step: int, *, by: Signer = OWNER) -> bytes:
    """The owner excludes author number ``author``."""
    return StatementCodec(manifest).exclude(by, signer(author).author, from_step)


def renew(manifest: Manifest, from_epoch: int, digits: str = "cd", *, by: Signer = OWNER) -> bytes:
    """The owner publishes another basis, whose hash is ``digits`` (two hex digits) again and again."""
    return StatementCodec(manifest).renew(by, from_epoch, digits * 32)


def claim(manifest: Manifest, token: int, author: int, *, by: Signer = OWNER) -> bytes:
    """Author number ``author`` claims token number ``token``."""
    codec = StatementCodec(manifest)
    return codec.claim(codec.invite(by, b"token".ljust(31, b".") + bytes([token])), signer(author).author)
