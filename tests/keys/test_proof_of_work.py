"""Looking for a key with work: how far it is, on all cores, and nothing left of it afterwards."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import trio

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.run.admission import AdmissionKind, AdmissionSpec, work_of
from protocol.run.manifest import Manifest
from sfnode.keys.proof_of_work import find_seed
from tests.support.manifests import small_manifest
from tests.support.running_nodes import children_of


def run_with_work(pow_bits: int) -> Manifest:
    return replace(small_manifest(), admission=AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=pow_bits))


def test_find_seed__some_bits__has_them() -> None:
    manifest = run_with_work(6)
    seed = trio.run(find_seed, manifest, lambda tries, seconds: None)
    assert work_of(manifest.run_id, Signer(seed).author) >= 6


def test_find_seed__takes_long__tells_how_far_it_is_and_hears_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.keys.proof_of_work._REPORT_S", 0.0)
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


def test_find_seed__longer_than_one_process_tries_alone__is_found_by_others_that_then_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sfnode.keys.proof_of_work._BLOCKS_ALONE", 0)
    manifest, before = run_with_work(10), children_of(os.getpid())
    seed = trio.run(find_seed, manifest, lambda tries, seconds: None)
    assert work_of(manifest.run_id, Signer(seed).author) >= 10
    assert children_of(os.getpid()) == before


def test_find_seed__cancelled_while_processes_search__leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.keys.proof_of_work._BLOCKS_ALONE", 0)
    monkeypatch.setattr("sfnode.keys.proof_of_work._REPORT_S", 0.0)
    seen: list[int] = []
    before = children_of(os.getpid())

    async def main() -> None:
        with trio.CancelScope() as scope:

            def tell(tries: int, seconds: float) -> None:
                seen.append(len(children_of(os.getpid())))
                scope.cancel()

            await find_seed(run_with_work(32), tell)

    trio.run(main)
    assert seen[0] > len(before) and children_of(os.getpid()) == before


@pytest.mark.parametrize(
    ("program", "told"),
    [("/bin/false", "ended before it had one"), ("/nowhere/python", "No such file")],
    ids=["ends by itself", "cannot start"],
)
def test_find_seed__processes_that_cannot_search__says_why(
    program: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfnode.keys.proof_of_work._BLOCKS_ALONE", 0)
    monkeypatch.setattr("sys.executable", program)
    with pytest.raises(ExceptionGroup) as caught:
        trio.run(find_seed, run_with_work(32), lambda tries, seconds: None)
    assert caught.group_contains(OperatorError, match=told)
