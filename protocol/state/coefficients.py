"""The model's state: integer coefficients, the sum over a set of updates (SPEC 4.5).

Integer addition is exact and commutes. So equal sets give equal bits in any order, and any term can be removed again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import Digest, hashing
from protocol.ledger import Envelope
from protocol.run import CoreKind, Manifest, TensorKind, core_sizes
from protocol.subspace import canonical_coordinates, rademacher_signs, scale_exp

Int64Array = NDArray[np.int64]

_OPEN_EPOCHS = 4  # so that late updates, and rounds across an epoch's end, find their epoch open
_UPDATES_PER_BATCH = 4_096  # decoded at once: 2 MB, where a whole run's would be hundreds
_CORES_PER_CHUNK = 1 << 15  # cores expanded at once: 1 MB of temporaries stays in the cache, and in the process
_SIGNS_PER_CHUNK = 1 << 21  # signs expanded at once, of which a Rademacher core has 2r: 20 MB of temporaries
_DIRECTIONS_PER_CHUNK = 1 << 13  # BLAS divides longer products among threads, which spin on cores that others use
_PRODUCTS_PER_CHUNK = 1 << 20  # coefficients that one product of Rademacher cores fills: 8 MB
_HASHED_AT_ONCE = 1 << 17  # coefficients: 1 MB
_NOTHING = np.zeros(0, dtype=np.int64)
# Cores summed into the coefficients at once: keeps one tick at about 10 ms. An update has one per direction and tensor.
_CORES_PER_TICK = {CoreKind.CANONICAL: 400_000, CoreKind.RADEMACHER: 40_000}
_SUMMED_PER_TICK_MAX = 1_024
_DENSE_PER_TICK = 4_000_000  # numbers of dense messages, likewise


class CoefficientLayout:
    """Knows where each tensor's coefficients lie in an epoch's flat vector: tensors in order, matrices row by row.

    With a dense core the number of the step's rows comes first.
    """

    def __init__(self, manifest: Manifest) -> None:
        method, sizes = manifest.method, core_sizes(manifest)
        ends = method.is_dense + np.cumsum(sizes, dtype=np.int64)
        self.rank = rank = method.rank
        self.rows = method.core_rows if method.is_dense else rank
        self.size = int(ends[-1])
        self.offsets = ends - np.array(sizes, dtype=np.int64)
        self.is_matrix = np.array([tensor.kind is not TensorKind.VECTOR for tensor in manifest.tensors])
        self.row_strides = np.where(self.is_matrix, rank, 1)

    def tensor(self, flat: Int64Array, index: int) -> Int64Array:
        """Return a view of one tensor's coefficients in ``flat``: int64[r, r] for a matrix, int64[r] for a vector.

        A dense core is int64[core_rows, r].
        """
        start = self.offsets[index]
        if not self.is_matrix[index]:
            return flat[start : start + self.rank]
        return flat[start : start + self.rows * self.rank].reshape(self.rows, self.rank)


class Coefficients:
    """Holds C[epoch, tensor], int64, zero at the start. The owner adds each valid update once.

    Only the few epochs that were changed last are kept in int64. A long run has many others; they rest in the fewest
    bytes that hold their coefficients.

    Attributes:
        revision: grows with each change.
        removals: what of `Roster.removals` is known to have left the sum; its owner notes it.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.layout = CoefficientLayout(manifest)
        self.run_id = manifest.run_id
        self._manifest = manifest
        self._epochs: dict[int, NDArray[np.signedinteger]] = {}
        self._latest: list[int] = []  # the epochs in int64, the one changed last at the end
        self._revisions: dict[int, int] = {}  # the epoch changed last at the end
        self._digests: dict[int, Digest | None] = {}  # by epoch, None where all is zero; absent after a change
        self._unhashed: set[int] = set()  # the epochs changed since they were hashed
        self._digest: Digest | None = None  # of the whole state; None after a change
        self.revision = 0
        self.removals: Sequence[tuple[int, str]] = ()

    def add(self, updates: Iterable[Envelope], *, sign: int = 1) -> None:
        """Add updates in any order. Cost: a few microseconds each, for a model of any size."""
        coming = iter(updates)
        while batch := list(islice(coming, _UPDATES_PER_BATCH)):
            self._accumulate_batch(batch, sign)

    def remove(self, updates: Iterable[Envelope]) -> None:
        """Remove updates that were added before, exactly."""
        self.add(updates, sign=-1)

    def flat(self, epoch: int) -> Int64Array:
        """Return a copy of all coefficients of ``epoch``: int64[layout.size]."""
        held = self._epochs.get(epoch)
        return np.zeros(self.layout.size, dtype=np.int64) if held is None else held.astype(np.int64)

    def packed(self, epoch: int) -> NDArray[np.signedinteger]:
        """Return a changed epoch in the fewest bytes. At rest it is not copied: do not write to the array."""
        held = self._epochs[epoch]
        return held.astype(f"i{fewest_bytes(held)}") if epoch in self._latest else held

    def core(self, epoch: int) -> Int64Array:
        """Return what the view has of ``epoch``, int64[layout.size]: its sums, or a dense step's quotients."""
        flat = self.flat(epoch)
        return dense_core(self._manifest, epoch, flat) if self._manifest.method.is_dense else flat

    def epochs(self) -> tuple[int, ...]:
        """Return the epochs with any coefficient other than zero, ascending."""
        return tuple(epoch for epoch in sorted(self._epochs) if self.epoch_digest(epoch))

    def revisions(self) -> dict[int, int]:
        """Return the revision with which each epoch was changed last."""
        return dict(self._revisions)

    def changed_since(self, revision: int) -> list[int]:
        """Return the epochs changed after this revision, in no order. The cost grows with their number alone."""
        latest_first = reversed(self._revisions.items())
        return [epoch for epoch, _ in takewhile(lambda each: each[1] > revision, latest_first)]

    def digest(self) -> Digest:
        """Return the state digest (SPEC 7.4), which is equal for equal states however they came about.

        Only the epochs that changed since the last call are hashed: usually one or two of many; without a change, none.
        """
        if self._digest is None:
            digests = [(epoch, self.epoch_digest(epoch)) for epoch in sorted(self._epochs)]
            fields = [part for epoch, digest in digests if digest for part in (hashing.u32(epoch), digest)]
            self._digest = hashing.hash_fields("sfnode/state/1", self._manifest.run_id, *fields)
        return self._digest

    def epoch_digest(self, epoch: int) -> Digest | None:
        """Return the digest of one epoch's coefficients, None when all of them are zero."""
        if epoch not in self._digests:
            self._digests[epoch] = self._digest_of(epoch)
            self._unhashed.discard(epoch)
        return self._digests[epoch]

    def is_as_told(self, epoch: int) -> bool:
        """Return whether the coefficients in memory still have the digest reported of them. Hashes the whole epoch."""
        return self.epoch_digest(epoch) == self._digest_of(epoch)

    def hash_resting(self) -> None:
        """Hash the epochs that have come to rest, so that :meth:`digest` never has many to hash."""
        for epoch in sorted(self._unhashed.difference(self._latest)):
            self.epoch_digest(epoch)

    def set_flat(self, epoch: int, values: NDArray[np.signedinteger]) -> None:
        """Replace an epoch's coefficients by a copy of ``values``, for a process that receives the state."""
        assert values.shape == (self.layout.size,)
        self._opened(epoch)[...] = values

    def _opened(self, epoch: int) -> Int64Array:
        """Return the coefficients of ``epoch`` to change in place; pack those changed before the last _OPEN_EPOCHS.

        Everything known of the old ones is dropped.
        """
        self.revision += 1
        self._revisions.pop(epoch, None)
        self._revisions[epoch] = self.revision
        self._digests.pop(epoch, None)
        self._unhashed.add(epoch)
        self._digest = None
        if epoch in self._latest:
            self._latest.remove(epoch)
        else:
            self._epochs[epoch] = self.flat(epoch)
        self._latest.append(epoch)
        for resting in self._latest[:-_OPEN_EPOCHS]:
            self._epochs[resting] = self.packed(resting)
        self._latest = self._latest[-_OPEN_EPOCHS:]
        flat: Int64Array = self._epochs[epoch]
        return flat

    def _digest_of(self, epoch: int) -> Digest | None:
        """Hash an epoch (SPEC 7.4) without a copy of all of it; None when all coefficients are zero."""
        flat = self._epochs.get(epoch, _NOTHING)
        pieces = (
            flat[start : start + _HASHED_AT_ONCE].astype("<i8", copy=False).data
            for start in range(0, flat.size, _HASHED_AT_ONCE)
        )
        return hashing.hash_pieces("sfnode/epoch/1", 8 * flat.size, pieces) if flat.any() else None

    def _accumulate_batch(self, updates: Sequence[Envelope], sign: int) -> None:
        by_epoch: dict[int, list[Envelope]] = {}
        for update in updates:
            by_epoch.setdefault(update.step // self._manifest.method.epoch_steps, []).append(update)
        for epoch, members in by_epoch.items():
            flat = self._opened(epoch)
            if self._manifest.method.is_dense:
                _add_dense(flat, members, sign)
                continue
            for chunk, numbers in self._chunks(members):
                self._accumulate_chunk(flat, chunk, numbers, sign)

    def _chunks(self, members: Sequence[Envelope]) -> Iterator[tuple[Sequence[Envelope], NDArray[np.uint32]]]:
        """Yield what to expand at once: several updates with all their directions, or some directions of one update."""
        method = self._manifest.method
        is_canonical = method.core is CoreKind.CANONICAL
        cores = _CORES_PER_CHUNK if is_canonical else _SIGNS_PER_CHUNK // (2 * method.rank)
        directions = max(1, min(_DIRECTIONS_PER_CHUNK, cores // len(self._manifest.tensors)))
        updates = max(1, directions // method.scalars)
        numbers = np.arange(method.scalars, dtype=np.uint32)
        for start in range(0, len(members), updates):
            for first in range(0, method.scalars, directions):
                yield members[start : start + updates], numbers[first : first + directions]

    def _accumulate_chunk(
        self, flat: Int64Array, members: Sequence[Envelope], numbers: NDArray[np.uint32], sign: int
    ) -> None:
        """Add the directions ``numbers`` of some updates; numbers run through a round's local steps (SPEC 4.2)."""
        method = self._manifest.method
        seeds = [member.seed for member in members]
        scalars_nd = np.array([member.scalars for member in members], dtype=np.int64)[:, numbers]
        weights_nk = np.array(
            [[self._manifest.weight(member.step + k) for k in range(method.local_steps)] for member in members]
        )
        amounts_nd = sign * weights_nk[:, numbers // method.directions] * scalars_nd
        if method.core is CoreKind.CANONICAL:
            self._add_canonical(flat, seeds, numbers, amounts_nd)
        else:
            self._add_rademacher(flat, seeds, numbers, amounts_nd)

    def _add_canonical(
        self, flat: Int64Array, seeds: Sequence[int], numbers: NDArray[np.uint32], amounts_nd: Int64Array
    ) -> None:
        """Add amount * s to C[i, j], or to a vector's C[i]: one coordinate per tensor and direction."""
        layout = self.layout
        row, column, sign = canonical_coordinates(seeds, numbers, len(layout.offsets), layout.rank)
        # In place, because these arrays are the largest temporaries: position = offset + row * stride + column.
        column *= layout.is_matrix
        position = row
        position *= layout.row_strides
        position += column
        position += layout.offsets
        sign *= amounts_nd[..., None]
        np.add.at(flat, position.reshape(-1), sign.reshape(-1))

    def _add_rademacher(
        self, flat: Int64Array, seeds: Sequence[int], numbers: NDArray[np.uint32], amounts_nd: Int64Array
    ) -> None:
        """Add the sum of amount * a b^T to C, exactly in fp64: the manifest bounds every sum below 2^53 (SPEC 4.5)."""
        layout = self.layout
        a, b = rademacher_signs(seeds, numbers, len(layout.offsets), layout.rank)
        a_pnr = _cores_first(a) * amounts_nd.reshape(1, -1, 1).astype(np.float64)
        b_pnr = _cores_first(b)
        matrices = np.flatnonzero(layout.is_matrix)
        at_once = max(1, _PRODUCTS_PER_CHUNK // layout.rank**2)
        for group in (matrices[start : start + at_once] for start in range(0, len(matrices), at_once)):
            sums_prr = np.matmul(a_pnr[group].transpose(0, 2, 1), b_pnr[group])
            for position, index in enumerate(group.tolist()):
                layout.tensor(flat, index)[...] += sums_prr[position].astype(np.int64)
        for index in np.flatnonzero(~layout.is_matrix).tolist():
            layout.tensor(flat, index)[...] += a_pnr[index].sum(axis=0).astype(np.int64)


def _add_dense(flat: Int64Array, members: Sequence[Envelope], sign: int) -> None:
    """Add the sum over the rows of dense messages, and their number (SPEC 4.7)."""
    for member in members:
        (rows,) = member.scalars
        flat[0] += sign * rows
        flat[1:] += np.multiply(member.numbers, sign * rows, dtype=np.int64)


def dense_core(manifest: Manifest, step: int, sums: Int64Array) -> Int64Array:
    """Return w S / (R + noise_rows) of a dense step, rounded half away from zero (SPEC 4.7); the first number is 0.

    ``sums``: R, the rows of all messages of the step, and S, the sums over these rows.
    """
    divisor = int(sums[0]) + manifest.method.noise_rows
    scaled = sums * manifest.weight(step)
    scaled[0] = 0
    core: Int64Array = np.sign(scaled) * ((2 * np.abs(scaled) + divisor) // (2 * divisor))
    return core


def fewest_bytes(flat: NDArray[np.signedinteger]) -> int:
    """Return the width (1, 2, 4 or 8) of the narrowest integers that hold all of ``flat``, which must not be empty."""
    low, high = int(flat.min()), int(flat.max())
    return next(width for width in (1, 2, 4, 8) if -(1 << 8 * width - 1) <= low and high < 1 << 8 * width - 1)


def _cores_first(signs: NDArray[np.int8]) -> NDArray[np.float64]:
    """Reorder int8[n, d, P, r] to float64[P, n d, r]."""
    n, d, tensors, rank = signs.shape
    return signs.reshape(n * d, tensors, rank).transpose(1, 0, 2).astype(np.float64)


def view_exp(manifest: Manifest, tensor_index: int) -> int:
    """Return k with W = W0 - 2^k U C V^T for this tensor (SPEC 4.5)."""
    return manifest.method.alpha_exp + scale_exp(manifest.method, manifest.tensors[tensor_index])


def updates_per_tick(manifest: Manifest) -> int:
    """Return how many updates a node sums at once between two events."""
    if manifest.method.is_dense:
        return max(1, min(_SUMMED_PER_TICK_MAX, _DENSE_PER_TICK // manifest.numbers))
    cores = manifest.method.scalars * len(manifest.tensors)
    return max(1, min(_SUMMED_PER_TICK_MAX, _CORES_PER_TICK[manifest.method.core] // cores))
