"""Equal bits in fresh processes: other hash seeds, other numbers of threads, other orders of arrival."""

from __future__ import annotations

import os
import subprocess
import sys

from protocol.state.replica import Replica
from tests import REPOSITORY
from tests.support.ledgers import seal
from tests.support.manifests import small_manifest

_PROGRAM = "from tests.protocol.test_determinism import digests; print(digests())"
# (PYTHONHASHSEED, threads of OpenMP and OpenBLAS)
_PROCESSES = [("0", "1"), ("1", "2"), ("4242", "4")]


def digests() -> str:
    """Root and state of a ledger with equivocations, both cores, added in an order that follows from set iteration."""
    found = []
    for core in ("canonical", "rademacher"):
        manifest = small_manifest(core=core, rank=32, directions=16)
        records = {seal(manifest, author, step) for author in range(4) for step in range(0, 40, 3)}
        records |= {seal(manifest, 2, step, *[step] * 16) for step in (3, 18)}
        replica = Replica(manifest)
        for record in records:  # in the process's own order
            replica.add(record)
        assert replica.state_digest() == replica.replayed_digest()
        found += [replica.ledger.root().hex(), replica.state_digest().hex()]
    return " ".join(found)


def in_fresh_process(hash_seed: str, threads: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_digests__in_fresh_processes__are_equal_whatever_the_hash_seed_and_the_threads() -> None:
    expected = digests()
    assert len(set(expected.split())) == 4
    assert {in_fresh_process(*process) for process in _PROCESSES} == {expected}
