"""Which examples a message is of, and which tokens answers have (SPEC 5.4, 5.7)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Author, hashing
from protocol.run import Manifest
from protocol.subspace.philox import words

_STREAM_EXAMPLES = 3
_STREAM_ANSWERS = 4


def example_indices(manifest: Manifest, seed: int, local_step: int, dataset_rows: int) -> NDArray[np.int64]:
    """Draw the rows of a local step's batch, with replacement: int64[batch_rows] in 0 ... dataset_rows - 1.

    Each is (word * dataset_rows) >> 32 of the next generator word: no division, bias below dataset_rows / 2^32.
    """
    rows = manifest.task.batch_rows
    first = local_step * rows
    drawn = words(seed, first + rows, _STREAM_EXAMPLES)[first:].astype(np.uint64)
    return ((drawn * np.uint64(dataset_rows)) >> np.uint64(32)).astype(np.int64)


def examples_in_turn(
    manifest: Manifest, author: Author, step: int, dataset_rows: int, batch_rows: int
) -> NDArray[np.int64]:
    """Return the rows of a batch of an author's own data: int64[batch_rows] in 0 ... dataset_rows - 1.

    All rows have their turn before any has another one, in a new order each time. So a run learns more from as many
    passes than from rows that are drawn with replacement, and noise hides the commonest of them better.
    """
    turns, places = np.divmod(step * batch_rows + np.arange(batch_rows), dataset_rows)
    seeds = [hashing.seed_of(manifest.run_id, author, turn % (1 << 32)) for turn in turns.tolist()]
    return np.array([_order(seed, dataset_rows)[place] for seed, place in zip(seeds, places.tolist(), strict=True)])


@lru_cache(maxsize=2)
def _order(seed: int, rows: int) -> NDArray[np.int64]:
    return words(seed, rows, _STREAM_EXAMPLES).argsort(kind="stable")


def answer_draws(seed: int, answers: int, tokens: int) -> NDArray[np.float64]:
    """Draw the numbers that choose the tokens of a message's answers (SPEC 5.7): float64[answers, tokens] in (0, 1)."""
    return (words(seed, answers * tokens, _STREAM_ANSWERS).astype(np.float64).reshape(answers, tokens) + 0.5) / 2.0**32
