"""What sums and digests take for themselves, beside the coefficients: bounded, whatever a manifest asks for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol import limits
from protocol.crypto.hashing import Author, Digest, hash_fields, u32
from protocol.ledger.envelope import Envelope
from protocol.run.manifest import Manifest, checked
from protocol.state.coefficients import Coefficients
from protocol.state.snapshot import Snapshot, encode_snapshot
from tests.support.manifests import manifest_data

TEMPORARIES_MAX = 32 << 20
TENSORS, SCALARS = 1_024, 1_024


def peak_of(run: Callable[[], object]) -> int:
    """Bytes that were allocated at most while it ran, NumPy's too."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def greedy_run(core: str, rank: int, tensors: int = TENSORS) -> Manifest:
    """As many cores for each update as may be."""
    data = manifest_data(core=core, rank=rank, directions=256, local_steps=4, clip=1)
    names = [{"name": str(number), "kind": "vector", "rows": 1, "cols": 0} for number in range(tensors)]
    schedule = {"kind": "constant", "weight_start": 1, "weight_end": 1}
    task = {**data["task"], "batch_rows": 256}
    return checked({**data, "tensors": names, "schedule": schedule, "task": task, "authors_max": 4})


@pytest.mark.slow
@pytest.mark.parametrize(("core", "rank", "tensors"), [("canonical", 128, TENSORS), ("rademacher", 128, TENSORS // 16)])
def test_coefficients__largest_update_that_a_manifest_allows__is_summed_in_some_megabytes(
    core: str, rank: int, tensors: int
) -> None:
    manifest = greedy_run(core, rank, tensors)
    assert tensors * SCALARS in (limits.CORES_MAX, limits.CORE_PRODUCTS_MAX // rank**2)
    update = Envelope(author=Author(bytes(32)), step=0, seed=7, scalars=(1,) * SCALARS, record=b"")
    state = Coefficients(manifest)
    assert peak_of(lambda: state.add([update])) < TEMPORARIES_MAX


def test_state_digest__of_a_large_epoch__takes_no_copy_of_it() -> None:
    manifest = greedy_run("canonical", 128)
    for dtype in (np.int64, np.int8):
        state = Coefficients(manifest)
        values: NDArray[np.signedinteger] = np.ones(32 * state.layout.size, dtype=dtype)
        state._epochs[0] = values
        expected = hash_fields("sfnode/epoch/1", values.astype("<i8").tobytes())
        assert peak_of(state.digest) < values.size * 8 // 4
        assert state.digest() == hash_fields("sfnode/state/1", manifest.run_id, u32(0), expected)


def test_snapshot__coefficients_in_the_fewest_bytes__take_no_copy_but_the_file() -> None:
    manifest = greedy_run("canonical", 128)
    epochs = {epoch: np.full(1 << 20, 300, dtype=np.int16) for epoch in range(4)}
    snapshot = Snapshot(step=1_024, digest=Digest(bytes(32)), slots=0, epochs=epochs)
    assert peak_of(lambda: encode_snapshot(manifest, snapshot)) < (8 << 20) * 9 // 8
