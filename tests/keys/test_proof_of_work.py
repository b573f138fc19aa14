"""Looking for a key with work: how far it is, and that it can be stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from protocol.crypto.keys import Signer
from protocol.run.admission import AdmissionKind, AdmissionSpec, work_of
from protocol.run.manifest import Manifest
from sfnode.keys import find_seed
from tests.support.manifests import small_manifest


def run_with_work(pow_bits: int) -> Manifest:
    return replace(small_manifest(), admission=AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=pow_bits))


def test_find_seed__some_bits__has_them() -> None:
    manifest = run_with_work(6)
    seed = trio.run(find_seed, manifest, lambda tries, seconds: None)
    assert work_of(manifest.run_id, Signer(seed).author) >= 6


def test_find_seed__takes_long__tells_how_far_it_is_and_hears_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.keys._REPORT_S", 0.0)
    told: list[int] = []

    async def main() -> None:
        with trio.CancelScope() as scope:

            def tell(tries: int, seconds: float) -> None:
                told.append(tries)
                if len(told) == 2:
                    scope.cancel()

            await find_seed(run_with_work(32), tell)

    trio.run(main)
    assert told == [500, 1_000]
