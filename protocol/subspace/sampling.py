"""Which examples a step uses: a function of the seed, so that anyone can re-run a claim on public data (SPEC 5.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.run import Manifest
from protocol.subspace.philox import words

_STREAM_EXAMPLES = 3


def example_indices(manifest: Manifest, seed: int, local_step: int, dataset_rows: int) -> NDArray[np.int64]:
    """Draw the rows of a local step's batch, with replacement: int64[batch_rows] in 0 ... dataset_rows - 1.

    Each is (word * dataset_rows) >> 32 of the next generator word: no division, bias below dataset_rows / 2^32.
    """
    rows = manifest.task.batch_rows
    first = local_step * rows
    drawn = words(seed, first + rows, _STREAM_EXAMPLES)[first:].astype(np.uint64)
    return ((drawn * np.uint64(dataset_rows)) >> np.uint64(32)).astype(np.int64)
