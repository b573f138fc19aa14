"""Bugs of the basis that an owner makes: directions that say less of the labels than they seem to."""

from __future__ import annotations

from tests.mutants.detectors import Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_READOUT = "sfnode.training.calibration.readout"
_FORWARD = "sfnode.training.calibration.forward"
_TESTS = "tests/training/test_calibration.py::"
_RENEWED = "tests/training/test_renewals.py::"
_BASES = "protocol.subspace.bases"

BASES = (
    Mutant(
        name="labels-moved-by-the-mean",
        breaks="what should tell examples apart moves all of them alike, which drowns what it says",
        edits=(Edit(_READOUT, "_differing", "centred_NI - (centred_NI @ along_I)[:, None] * along_I", "inputs_NI"),),
        detector=Tests(
            (_TESTS + "test_fit_readout__inputs_that_tell_the_labels_apart__new_ones_are_told_apart_as_it_says",)
        ),
    ),
    Mutant(
        name="prior-along-the-mean",
        breaks="what should move all examples alike moves each as far as its inputs are large",
        edits=(
            Edit(
                _READOUT,
                "uniform_weights",
                "inputs_NI.T @ dual_N / scale",
                "inputs_NI.mean(dim=0) / inputs_NI.mean(dim=0).square().sum() / len(inputs)",
            ),
        ),
        detector=Tests((_TESTS + "test_uniform_weights__inputs_of_unlike_sizes__one_of_any_example_old_or_new",)),
    ),
    Mutant(
        name="start-of-the-wrong-sign",
        breaks="a run sets out from weights that tell the labels the other way round",
        edits=(Edit("sfnode.training.model.folding", "factors_of", "-(2.0**exp)", "2.0**exp"),),
        detector=Tests((_TESTS + "test_forward_basis__start_in_the_weights__labels_are_told_as_it_says[llama]",)),
    ),
    Mutant(
        name="estimates-without-the-start",
        breaks="while no epoch is closed, slopes are measured at the model as it was published",
        edits=(
            Edit(
                "sfnode.training.estimator", "Estimator._closed_weights", " and not self._bases.starts(live_epoch)", ""
            ),
        ),
        detector=Tests((_TESTS + "test_forward_basis__start_in_the_weights__labels_are_told_as_it_says[llama]",)),
    ),
    Mutant(
        name="starts-of-renewals-left-out",
        breaks="a view has the start of the manifest's basis alone",
        edits=(Edit(_BASES, "Bases.starts", "if first <= epoch", "if first == 0"),),
        detector=Vectors(("views.json",)),
    ),
    Mutant(
        name="starts-of-epochs-to-come",
        breaks="a renewal's start is in the weights before its first epoch",
        edits=(Edit(_BASES, "Bases.starts", " if first <= epoch", ""),),
        detector=Vectors(("views.json",)),
    ),
    Mutant(
        name="folds-of-other-starts",
        breaks="slopes of an epoch are measured in folded weights of another one, which has other starts",
        edits=(Edit("sfnode.training.estimator", "_digest", "bases.starts(at)", "()"),),
        detector=Tests((_RENEWED + "test_session__start_of_a_renewal__is_in_the_folds_of_its_epochs_alone",)),
    ),
    Mutant(
        name="renewal-tried-without-its-start",
        breaks="a start that hurts is published: the trial does not add it",
        edits=(
            Edit(
                "sfnode.training.calibration.renewal_trial",
                "try_renewal",
                "Bases(manifest, found), data)",
                "Bases(manifest, replace(found, start=None)), data)",
            ),
        ),
        detector=Tests((_RENEWED + "test_try_renewal__start__is_in_the_loss_after",)),
    ),
    Mutant(
        name="renewal-beside-those-before-it",
        breaks="a start is fitted at weights that lack an earlier one, and both are added",
        edits=(Edit("sfnode.training.calibration.sources", "move_before", "epoch - 1", "0"),),
        detector=Tests((_RENEWED + "test_move_before__starts_of_earlier_renewals__are_in_the_weights[2-True]",)),
    ),
    Mutant(
        name="examples-in-another-order",
        breaks="the length of a start is judged by the labels of other examples",
        edits=(
            Edit(
                _FORWARD,
                "forward_basis",
                "for members in chunks_of(examples, EVALUATION_TOKENS)",
                "for members in [examples]",
            ),
        ),
        detector=Tests((_TESTS + "test_forward_basis__start_in_the_weights__labels_are_told_as_it_says[llama]",)),
    ),
    Mutant(
        name="start-that-hurts",
        breaks="a run sets out behind the model as it is, where held-back examples say that the start does not help",
        edits=(Edit(_FORWARD, "forward_basis", "trial.of_start.loss < trial.of_model.loss", "True"),),
        detector=Tests(
            (_TESTS + "test_forward_basis__held_back_examples_say_the_contrary__no_start_and_columns_all_the_same",)
        ),
    ),
    Mutant(
        name="learnt-by-heart",
        breaks="a run sets out where the owner's short run ended, though held-back examples are worse off there",
        edits=(
            Edit(
                "sfnode.training.calibration.trajectory",
                "trajectory_basis",
                "min(found, key=lambda each: found[each].loss, default=1.0)",
                "1.0",
            ),
        ),
        detector=Tests(
            (
                "tests/training/test_trajectory.py::"
                "test_basis_of__held_back_examples_say_the_contrary__no_start_and_columns_all_the_same",
            )
        ),
    ),
    Mutant(
        name="judged-by-what-it-was-fitted-to",
        breaks="`sfnode init` tells an accuracy that only its own examples have",
        edits=(Edit(_READOUT, "_cross_validated", "torch.where(fold_N != fold)[0]", "torch.arange(len(fold_N))"),),
        detector=Tests((_TESTS + "test_fit_readout__labels_that_nothing_tells__chance",)),
    ),
    Mutant(
        name="prior-taken-for-a-gradient",
        breaks="the leading direction of a gradient is how often each label occurs",
        edits=(
            Edit(
                "sfnode.training.calibration.gradient",
                "balanced",
                "(logits_NL + shift_L).softmax(dim=1).mean(dim=0).log()",
                "wanted_L",
            ),
        ),
        detector=Tests((_TESTS + "test_balanced__model_that_prefers_a_label__mean_prediction_has_the_frequencies",)),
    ),
    Mutant(
        name="flattened-rows-mixed-up",
        breaks="of OPT's MLP, which sees all tokens in one row, the wrong tokens are read",
        edits=(
            Edit(
                "sfnode.training.calibration.residual_stream",
                "last_of",
                "x_NTI[torch.arange(len(last_N), device=x.device), last_N]",
                "x_NTI.flatten(0, 1)[last_N]",
            ),
        ),
        detector=Tests((_TESTS + "test_last_of__rows_flattened_or_not__the_same_inputs",)),
    ),
)
