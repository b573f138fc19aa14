"""Bugs of dense cores: what a message may hold, what is summed of it, and the quotient that the model sees."""

from __future__ import annotations

from tests.mutants.detectors import Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_ENVELOPE = "protocol.ledger.envelope"
_MANIFEST = "protocol.run.manifest"
_METHOD = "protocol.run.method"
_COEFFICIENTS = "protocol.state.coefficients"
_LEAVING_OUT = "protocol.state.leave_one_out"
_PACKING = "protocol.ledger.envelope"
_QUANTISATION = "protocol.subspace.quantisation"
_ANY_SUMS = "test_dense_core__any_sums__is_the_exact_quotient_rounded_half_away_from_zero"
_FULL_SUMS = "test_dense_sums__any_messages__are_rows_and_rows_times_numbers"
_BOUNDS = "test_dense_envelope__rows_numbers_and_energy__are_judged_at_their_bounds"
_ANY_GRADIENT = "test_quantise_dense__any_gradient__is_a_message_that_everybody_accepts"
_ANY_NUMBERS = "test_pack__any_numbers__are_bits_in_order_and_come_back_with_zeros_behind_them"
_BROKEN_RULES = "test_manifest__dense_core_breaks_a_rule__is_refused_by_name"
_LINEAR_LOSS = "test_leaving_out__dense_and_linear_loss__lies_within_its_error"


def _state(name: str) -> Tests:
    return Tests((f"tests/protocol/test_dense_state.py::{name}",))


def _message(name: str) -> Tests:
    return Tests((f"tests/protocol/test_dense_messages.py::{name}",))


def _packing(name: str) -> Tests:
    return Tests((f"tests/protocol/test_packing.py::{name}",))


def _manifest(name: str) -> Tests:
    return Tests((f"tests/protocol/test_manifest.py::{name}",))


def _leaving_out(name: str) -> Tests:
    return Tests((f"tests/protocol/test_leaving_out.py::{name}",))


MESSAGES = (
    Mutant(
        name="message-of-no-rows",
        breaks="a dense message may stand for no rows: it says that it has measured nothing, and moves the model",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "if not 1 <= rows", "if not 0 <= rows"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="rows-without-bound",
        breaks="a dense message may stand for 65,535 rows: one author outweighs all others",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "if not 1 <= rows <= method.directions", "if rows < 1"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="minus-128-accepted",
        breaks="a number below the clip counts: sums may exceed what the manifest's bound says of them",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "< -method.clip", "< -method.clip - 1"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="energy-without-bound",
        breaks="a dense message may be as long as it likes, and drown those of all others",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "> method.energy_max", "> 127**2 * len(numbers)"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="energy-at-the-bound-refused",
        breaks="a message just as long as allowed is rejected, and whoever relays it loses its sessions",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "> method.energy_max", ">= method.energy_max"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="energy-in-bytes",
        breaks="squares are summed in bytes, so that a long message looks short",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "dtype=np.int32", "dtype=np.int8"),),
        detector=_message(_BOUNDS),
    ),
    Mutant(
        name="numbers-without-sign",
        breaks="what goes down is read as going up, and far",
        edits=(Edit(_PACKING, "unpack_numbers", "view(np.int8)", "view(np.uint8)"),),
        detector=_state(_FULL_SUMS),
    ),
    Mutant(
        name="low-bits-first",
        breaks="the numbers of a byte change places: others read another message than was measured",
        edits=(Edit(_PACKING, "pack_numbers", "np.arange(8 - bits, -1, -bits)", "np.arange(0, 8, bits)"),),
        detector=_packing(_ANY_NUMBERS),
    ),
    Mutant(
        name="anything-behind-the-last-number",
        breaks="one message has several encodings, so that its author's slot is void for whom gets two of them",
        edits=(Edit(_ENVELOPE, "_dense_numbers", "numbers[count:].any()", "False"),),
        detector=_packing("test_record__every_last_byte__is_accepted_if_and_only_if_nothing_is_behind_the_last_number"),
    ),
    Mutant(
        name="snapshot-sums-of-8-bits",
        breaks="a snapshot may hold sums that no messages of 4 or 2 bits can have",
        edits=(Edit("protocol.state.snapshot", "_decode_epochs", "manifest.method.clip * rows", "127 * rows"),),
        detector=Vectors(("snapshots.json",)),
    ),
    Mutant(
        name="long-gradient-sent-as-it-is",
        breaks="an honest node of unusual examples signs a message that all others reject",
        edits=(Edit(_QUANTISATION, "quantise_dense", "factor * number", "number"),),
        detector=_message(_ANY_GRADIENT),
    ),
    Mutant(
        name="no-room-for-rounding",
        breaks="a gradient is shortened to the bound, and its rounding goes beyond it",
        edits=(Edit(_QUANTISATION, "quantise_dense", " - math.sqrt(len(scaled)) / 2", ""),),
        detector=_message(_ANY_GRADIENT),
    ),
    Mutant(
        name="dense-rows-read-from-zeros",
        breaks="how many rows another node has taken is guessed from its last number, as of drawn directions",
        edits=(Edit(_METHOD, "Method.directions_measured", "if self.is_dense:", "if not self:"),),
        detector=_message("test_affordable__dense_messages__say_how_many_rows_others_took"),
    ),
)

STATE = (
    Mutant(
        name="rows-not-counted",
        breaks="a message counts as one row: those of slow machines move the model as much as those of fast ones",
        edits=(Edit(_COEFFICIENTS, "_add_dense", "flat[0] += sign * rows", "flat[0] += sign"),),
        detector=_state(_FULL_SUMS),
    ),
    Mutant(
        name="numbers-not-times-rows",
        breaks="the sum is one of means, whatever rows they stand for",
        edits=(Edit(_COEFFICIENTS, "_add_dense", "numbers, sign * rows,", "numbers, sign,"),),
        detector=_state(_FULL_SUMS),
    ),
    Mutant(
        name="products-in-bytes",
        breaks="rows times numbers are formed in bytes, and wrap around",
        edits=(Edit(_COEFFICIENTS, "_add_dense", "dtype=np.int64", 'dtype=np.int8, casting="unsafe"'),),
        detector=_state(_FULL_SUMS),
    ),
    Mutant(
        name="removal-keeps-the-rows",
        breaks="a voided message takes its numbers along, and its rows still dilute those of others",
        edits=(Edit(_COEFFICIENTS, "_add_dense", "flat[0] += sign * rows", "flat[0] += rows"),),
        detector=_state("test_dense_replica__message_voided_or_author_excluded__their_rows_leave_with_their_numbers"),
    ),
    Mutant(
        name="view-of-sums",
        breaks="the model is given the sums where it should see the quotients",
        edits=(
            Edit(
                _COEFFICIENTS,
                "Coefficients.core",
                "dense_core(self._manifest, epoch, flat) if self._manifest.method.is_dense else flat",
                "flat",
            ),
        ),
        detector=_state("test_dense_sums__message_of_rows_but_no_slope__counts_its_rows"),
    ),
    Mutant(
        name="quotient-floored",
        breaks="the quotient is cut off, so that all cores shrink a little in every step",
        edits=(
            Edit(
                _COEFFICIENTS,
                "dense_core",
                "(2 * np.abs(scaled) + divisor) // (2 * divisor)",
                "(np.abs(scaled) // divisor)",
            ),
        ),
        detector=_state(_ANY_SUMS),
    ),
    Mutant(
        name="halves-towards-zero",
        breaks="a half goes towards zero, where all others let it go away from it",
        edits=(Edit(_COEFFICIENTS, "dense_core", "+ divisor)", "+ divisor - 1)"),),
        detector=_state("test_dense_core__halves__go_away_from_zero"),
    ),
    Mutant(
        name="halves-upwards",
        breaks="a half goes up whatever its sign, as a floor of what is half a unit more has it",
        edits=(
            Edit(
                _COEFFICIENTS,
                "dense_core",
                "np.sign(scaled) * ((2 * np.abs(scaled) + divisor) // (2 * divisor))",
                "(2 * scaled + divisor) // (2 * divisor)",
            ),
        ),
        detector=_state("test_dense_core__halves__go_away_from_zero"),
    ),
    Mutant(
        name="noise-rows-left-out",
        breaks="a step of one row moves the model as far as one of thousands",
        edits=(Edit(_COEFFICIENTS, "dense_core", "int(sums[0]) + manifest.method.noise_rows", "max(1, int(sums[0]))"),),
        detector=_state(_ANY_SUMS),
    ),
    Mutant(
        name="weight-of-the-step-before",
        breaks="a step's quotient has the weight of its neighbour",
        edits=(Edit(_COEFFICIENTS, "dense_core", "manifest.weight(step)", "manifest.weight(max(0, step - 1))"),),
        detector=_state(_ANY_SUMS),
    ),
    Mutant(
        name="rows-in-the-view",
        breaks="the number of rows is scaled into the core as if it were a coordinate",
        edits=(Edit(_COEFFICIENTS, "dense_core", "    scaled[0] = 0\n", ""),),
        detector=_state(_ANY_SUMS),
    ),
    Mutant(
        name="dense-tick-of-any-length",
        breaks="a tick sums a thousand dense messages, however long they are",
        edits=(Edit(_COEFFICIENTS, "updates_per_tick", "_DENSE_PER_TICK // manifest.numbers", "_DENSE_PER_TICK"),),
        detector=_state("test_dense_replica__waiting_updates__are_summed_a_few_steps_at_a_time"),
    ),
)

RULES = (
    Mutant(
        name="dense-method-of-any-kind",
        breaks="a dense run may have two sides or local steps: fields that nothing reads then",
        edits=(Edit(_METHOD, "broken_method_rules", "fixed != _FIXED_IF_DENSE", "False"),),
        detector=_manifest(_BROKEN_RULES),
    ),
    Mutant(
        name="dense-clip-of-any-size",
        breaks="a dense run may have a clip that its bits could exceed: one number has two bounds",
        edits=(Edit(_METHOD, "broken_method_rules", "method.clip not in _DENSE_CLIPS", "False"),),
        detector=_manifest(_BROKEN_RULES),
    ),
    Mutant(
        name="dense-vector",
        breaks="a dense run may list a vector, which has no core of rows",
        edits=(Edit(_MANIFEST, "_broken_dense_rules", "tensor.kind is TensorKind.VECTOR", "False"),),
        detector=_manifest(_BROKEN_RULES),
    ),
    Mutant(
        name="outputs-of-two-sizes",
        breaks="a dense run may list tensors that no one U fits, and nobody can make its basis",
        edits=(Edit(_MANIFEST, "_broken_dense_rules", "len({tensor.outputs for tensor in tensors}) > 1", "False"),),
        detector=_manifest(_BROKEN_RULES),
    ),
    Mutant(
        name="more-rows-a-step-than-a-message",
        breaks="a step may draw more rows than a message can say that it stands for",
        edits=(Edit(_MANIFEST, "_broken_dense_rules", "batch_rows != method.directions", "batch_rows <= 0"),),
        detector=_manifest(_BROKEN_RULES),
    ),
    Mutant(
        name="dense-message-longer-than-a-frame",
        breaks="a run may have messages of which not one fits into a frame",
        edits=(Edit(_MANIFEST, "_broken_dense_rules", "> limits.DENSE_NUMBERS_MAX", "> 8 * limits.DENSE_NUMBERS_MAX"),),
        detector=_manifest("test_manifest__dense_message_of_more_numbers_than_a_frame_should_hold__is_refused"),
    ),
    Mutant(
        name="view-bound-of-one-step",
        breaks="the bound of the view counts one step, where all steps add up in one basis",
        edits=(Edit(_MANIFEST, "view_max", "manifest.steps * weight", "weight"),),
        detector=_manifest("test_manifest__dense_view_of_all_steps__stays_exact"),
    ),
    Mutant(
        name="left-out-but-their-rows",
        breaks="an author is left out, and their rows still dilute what the others have measured",
        edits=(
            Edit(_LEAVING_OUT, "_DenseStep.moves", "in_all - each)", "in_all - each * (np.arange(len(each)) > 0))"),
        ),
        detector=_leaving_out(_LINEAR_LOSS),
    ),
    Mutant(
        name="noise-times-itself",
        breaks="the slope is that of the very messages that the move is made of: their noise looks like progress",
        edits=(Edit(_LEAVING_OUT, "_dense_effects", "for each in (before, after)", "for each in (now,)"),),
        detector=_leaving_out(_LINEAR_LOSS),
    ),
    Mutant(
        name="error-of-unrelated-directions",
        breaks="the error of leaving out is too small for an author who went along the slope",
        edits=(Edit(_LEAVING_OUT, "_effect", "variance += mean**2", "variance += 0"),),
        detector=_leaving_out("test_leaving_out__slopes_that_differ__are_averaged_by_the_weights_of_their_steps"),
    ),
)
