"""Bugs of the arithmetic: coefficients, subspace, generator, quantisation, hashing; and of the model in memory."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_COEFFICIENTS = "protocol.state.coefficients"
_CHUNK = "Coefficients._accumulate_chunk"
_MEMORY = "tests/protocol/test_coefficient_memory.py::"
_READING_TESTS = "tests/training/test_reading_weights.py::"
_OFFLOAD = "sfnode.training.model.offload"
_OFFLOAD_TESTS = "tests/training/test_offload.py::"
_CONTENT_TESTS = "tests/training/test_content.py::"

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
            Edit(_COEFFICIENTS, "Coefficients._digest_of", '"<i8"', '"<f4"'),
        ),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="all-cores-of-an-update-at-once",
        breaks="what one update takes while it is summed grows with its tensors and directions: gigabytes",
        edits=(
            Edit(_COEFFICIENTS, "Coefficients._chunks", "range(0, method.scalars, directions)", "(0,)"),
            Edit(_COEFFICIENTS, "Coefficients._chunks", "numbers[first : first + directions]", "numbers"),
        ),
        detector=Tests(
            (_MEMORY + "test_coefficients__largest_update_that_a_manifest_allows__is_summed_in_some_megabytes",)
        ),
    ),
    Mutant(
        name="digest-of-a-copy",
        breaks="an epoch's digest takes as much memory again as the epoch",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients._digest_of",
                '+ _HASHED_AT_ONCE].astype("<i8", copy=False)',
                "+ flat.size].copy()",
            ),
            Edit(
                _COEFFICIENTS,
                "Coefficients._digest_of",
                "for start in range(0, flat.size, _HASHED_AT_ONCE)",
                "for start in (0,)",
            ),
        ),
        detector=Tests((_MEMORY + "test_state_digest__of_a_large_epoch__takes_no_copy_of_it",)),
    ),
    Mutant(
        name="epoch-digest-not-renewed",
        breaks="the cached digest of an epoch is kept when an update is added to it",
        edits=(Edit(_COEFFICIENTS, "Coefficients._opened", "    self._digests.pop(epoch, None)\n", ""),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="state-digest-not-renewed",
        breaks="the cached digest of the state is kept when an update is added",
        edits=(Edit(_COEFFICIENTS, "Coefficients._opened", "    self._digest = None\n", ""),),
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
        edits=(Edit(_COEFFICIENTS, "Coefficients._digest_of", "if flat.any() else None", ""),),
        detector=Vectors(("ledgers.json",)),
    ),
)

MEANING = (
    Mutant(
        name="float-in-the-digest",
        breaks="the state digest is over floats: its bytes are others, and large sums are rounded",
        edits=(Edit(_COEFFICIENTS, "Coefficients._digest_of", '"<i8"', '"<f8"'),),
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
                "self._add_canonical(flat, seeds, numbers, amounts_nd)",
                "self._add_canonical(flat, seeds, numbers % np.uint32(method.directions), amounts_nd)",
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
        edits=(Edit("protocol.subspace.philox", "philox4x32", "zip(*keys, strict=True)", "[*zip(*keys)][:-1]"),),
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

MEMORY = (
    Mutant(
        name="whole-model-read-first",
        breaks="the model is in memory unquantised before the first weight of it is quantised",
        edits=(
            Edit(
                "sfnode.training.model.quantised",
                "load_in",
                "dtype, as_read)\n    for layer in _chosen_layers(precision, model).values():\n",
                "dtype)\n    for layer in _chosen_layers(precision, model).values():\n"
                "        layer.weight = quantised_weight(precision, device, layer.weight)\n",
            ),
        ),
        detector=Tests((_READING_TESTS + "test_int8__first_weight_is_quantised__no_other_one_is_in_memory",)),
    ),
    Mutant(
        name="weights-mapped",
        breaks="weights whose dtype stays are the mapped file: a change of the file changes a running model",
        edits=(Edit("sfnode.training.model.loading", "_unread", 'backend="pread"', 'backend="mmap"'),),
        detector=Tests((_READING_TESTS + "test_weights__file_changes_after_loading__model_does_not",)),
    ),
    Mutant(
        name="quantised-in-any-shape",
        breaks="a weight of another shape than the model's is quantised and put into it",
        edits=(
            Edit(
                "sfnode.training.model.change_while_loading",
                "_Change._changed",
                "if weight.shape != wanted:",
                "if False:",
            ),
        ),
        detector=Tests((_READING_TESTS + "test_int8__tensor_of_another_shape__is_refused",)),
    ),
    Mutant(
        name="any-weights-are-the-run's",
        breaks="a node trains on other weights than the run's, if they lie in other files",
        edits=(Edit("sfnode.training.model.weights_digest", "check_model", "if found != spec.content:", "if False:"),),
        detector=Tests((_CONTENT_TESTS + "test_check__other_files_with_the_same_weights__are_the_runs_model",)),
    ),
    Mutant(
        name="content-hashed-in-memory",
        breaks="the whole model is in memory while its weights are hashed",
        edits=(
            Edit(
                "sfnode.training.model.weights_digest",
                "content_of",
                "torch.zeros((), dtype=values.dtype).expand(values.shape)",
                "values",
            ),
        ),
        detector=Tests((_CONTENT_TESTS + "test_content__whole_model__is_never_in_memory",)),
    ),
    Mutant(
        name="shape-not-in-the-content",
        breaks="weights of another shape are the run's if their numbers are",
        edits=(
            Edit(
                "protocol.run.model",
                "weights_digest",
                'b"".join(size.to_bytes(4, "big") for size in shape)',
                'b""',
            ),
        ),
        detector=Vectors(("models.json",)),
    ),
    Mutant(
        name="freed-memory-kept-from-the-start",
        breaks="what loading a model has left stays with the process for ever",
        edits=(Edit("sfnode.training.allocator", "giving_back_freed_memory", "        trim()\n", ""),),
        detector=Tests(
            (
                "tests/training/test_worker_memory.py::"
                "test_loading__is_over__what_is_free_was_given_back_and_from_now_on_is_kept",
            )
        ),
    ),
    Mutant(
        name="bases-of-one-epoch-planned",
        breaks="the memory plan forgets that the worker keeps the bases of two epochs",
        edits=(
            Edit("sfnode.doctor.memory_plan", "plan_memory", "min(_BASES_KEPT, 1 + _closed_epochs(manifest))", "1"),
        ),
        detector=Tests(
            (
                "tests/training/test_worker_memory.py::"
                "test_memory_plan__weights_bases_and_closed_epochs__are_what_a_worker_holds",
            )
        ),
    ),
)

OFFLOAD = (
    Mutant(
        name="hook-of-the-plain-layer",
        breaks="a layer whose weight waits computes without perturbation: its class changed after the hook came",
        edits=(Edit(_OFFLOAD, "offload", 'vars(layer)["_old_forward"] =', "_ ="),),
        detector=Tests(
            (_OFFLOAD_TESTS + "test_offload__every_group_trained_and_epochs_closed__gradients_are_the_same",)
        ),
    ),
    Mutant(
        name="closed-epochs-beside-the-hook",
        breaks="a layer whose weight waits computes with the base's, whatever the closed epochs did to it",
        edits=(
            Edit(
                "sfnode.training.model.tensor_groups",
                "WeightSwitch._put",
                "(waiting := waiting_weights(module)) is not None",
                "(waiting := {}) is None",
            ),
        ),
        detector=Tests(
            (_OFFLOAD_TESTS + "test_offload__every_group_trained_and_epochs_closed__gradients_are_the_same",)
        ),
    ),
    Mutant(
        name="folded-weights-in-memory",
        breaks="a closed epoch puts copies of all weights that wait into memory",
        edits=(
            Edit(
                "sfnode.training.model.tensor_groups",
                "WeightSwitch.placed",
                "laid_aside(weight, self._device) if waits else weight",
                "weight",
            ),
        ),
        detector=Tests((_OFFLOAD_TESTS + "test_offload__folded_weights__wait_where_the_base_waits",)),
    ),
    Mutant(
        name="no-room-for-the-layer-at-work",
        breaks="weights that stay take all of the limit, and the one that is brought in exceeds it",
        edits=(
            Edit("sfnode.worker_protocol.weight_plan", "plan_weights", "budget - others - largest", "budget - others"),
        ),
        detector=Tests((_OFFLOAD_TESTS + "test_plan__limit__first_layers_stay_and_room_for_one_more_is_kept",)),
    ),
    Mutant(
        name="weight-that-is-not-there",
        breaks="a model that uses a waiting weight without calling its layer is trained on garbage",
        edits=(Edit(_OFFLOAD, "_OnlyNumbers.__torch_dispatch__", "> 1", "> 2"),),
        detector=Tests((_OFFLOAD_TESTS + "test_offload__model_that_uses_a_weight_without_its_layer__is_refused",)),
    ),
    Mutant(
        name="disk-in-memory",
        breaks="weights wait on a disk that lies in memory itself",
        edits=(Edit("sfnode.worker_protocol.memory_and_disk", "free_disk", "in _IN_MEMORY", "in ()"),),
        detector=Tests((_OFFLOAD_TESTS + "test_free_disk__file_system_in_memory__is_no_room",)),
    ),
)
