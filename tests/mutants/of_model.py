"""Bugs of the arithmetic: coefficients, subspace, generator, quantisation, hashing."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_COEFFICIENTS = "protocol.state.coefficients"
_CHUNK = "Coefficients._accumulate_chunk"

SUMS = (
    Mutant(
        name="rounded-per-batch",
        breaks="sums are scaled down once per batch: what a batch rounds away depends on who was in it",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients._add_canonical",
                "np.add.at(flat, position.reshape(-1), sign.reshape(-1))",
                "batch = np.zeros_like(flat)\n"
                "    np.add.at(batch, position.reshape(-1), sign.reshape(-1))\n"
                "    flat += batch // 1_000 * 1_000",
            ),
        ),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="float-sums",
        breaks="coefficients are kept as 32-bit floats: their sum depends on the order",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients._opened",
                "self._epochs[epoch] = self.flat(epoch)",
                "self._epochs[epoch] = self.flat(epoch).astype(np.float32)",
            ),
            Edit(
                _COEFFICIENTS,
                "Coefficients._add_canonical",
                "sign *= amounts_nd[..., None]",
                "sign = sign * amounts_nd[..., None] / 3",
            ),
            Edit(_COEFFICIENTS, "Coefficients._epoch_digest", '"<i8"', '"<f4"'),
        ),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="epoch-digest-not-renewed",
        breaks="the cached digest of an epoch is kept when an update is added to it",
        edits=(Edit(_COEFFICIENTS, "Coefficients._accumulate_batch", "        self._digests.pop(epoch, None)\n", ""),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="epochs-in-order-of-arrival",
        breaks="the state digest goes over epochs in the order in which they were first touched",
        edits=(
            Edit(
                _COEFFICIENTS, "Coefficients.digest", "for epoch in sorted(self._epochs)]", "for epoch in self._epochs]"
            ),
        ),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="zero-epochs-are-hashed",
        breaks="an epoch whose updates were all taken out again still shows in the state digest",
        edits=(Edit(_COEFFICIENTS, "Coefficients._epoch_digest", "if flat.any() else None", ""),),
        detector=Vectors(("ledgers.json",)),
    ),
)

MEANING = (
    Mutant(
        name="float-in-the-digest",
        breaks="the state digest is over floats: its bytes are others, and large sums are rounded",
        edits=(Edit(_COEFFICIENTS, "Coefficients._epoch_digest", '"<i8"', '"<f8"'),),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="epoch-boundary-off-by-one",
        breaks="the last step of an epoch is counted to the next one",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients._accumulate_batch",
                "update.step // self._manifest.method.epoch_steps",
                "(update.step + 1) // self._manifest.method.epoch_steps",
            ),
        ),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="weight-of-the-first-local-step",
        breaks="all local steps of a round have the learning rate of its first",
        edits=(
            Edit(_COEFFICIENTS, _CHUNK, "self._manifest.weight(member.step + k)", "self._manifest.weight(member.step)"),
        ),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="vectors-without-a-sign",
        breaks="a vector's canonical core loses its sign: biases only ever move one way",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients._add_canonical",
                "    sign *= amounts_nd[..., None]\n",
                "    sign[..., ~layout.is_matrix] = 1\n    sign *= amounts_nd[..., None]\n",
            ),
        ),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="same-cores-for-all-local-steps",
        breaks="a round's directions are numbered from zero in each local step",
        edits=(
            Edit(
                _COEFFICIENTS,
                _CHUNK,
                "np.arange(method.scalars, dtype=np.uint32)",
                "np.tile(np.arange(method.directions, dtype=np.uint32), method.local_steps)",
            ),
        ),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="basis-of-all-epochs",
        breaks="the basis is never drawn anew: training stays in one subspace",
        edits=(Edit("protocol.subspace.directions", "basis", "u32(epoch)", "u32(0)"),),
        detector=Vectors(("subspace.json",)),
    ),
    Mutant(
        name="nine-rounds-of-philox",
        breaks="the generator does one round less",
        edits=(Edit("protocol.subspace.philox", "philox4x32", "range(ROUNDS)", "range(ROUNDS - 1)"),),
        detector=Vectors(("generator.json",)),
    ),
    Mutant(
        name="fields-without-lengths",
        breaks="hashed fields are joined without their lengths: other fields give the same hash",
        edits=(
            Edit(
                "protocol.crypto.hashing", "hash_fields", '        hasher.update(len(field).to_bytes(4, "big"))\n', ""
            ),
        ),
        detector=Vectors(("hashing.json",)),
    ),
    Mutant(
        name="halves-to-even",
        breaks="scalars are rounded by Python's round",
        edits=(
            Edit(
                "protocol.crypto.hashing",
                "round_half_away",
                "    magnitude = int(abs(value))",
                "    return round(value)\n    magnitude = int(abs(value))",
            ),
        ),
        detector=Vectors(("scalars.json",)),
    ),
)
