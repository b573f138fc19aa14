"""Bugs of a dense core in the training process: which layers have one, its basis, and what the model makes of both."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_FOUND = "sfnode.training.calibration.found_basis"
_RATE = "sfnode.training.calibration.learning_rate"
_MEASURED = "sfnode.training.calibration.measured_path"
_COMPLETIONS = "tests/training/test_completion_basis.py::"
_PROBE = "sfnode.training.model.layer_probe"
_END = "tests/training/test_stream_end.py::"
_PATH = "tests/training/test_measured_path.py::"
_ESTIMATE = "sfnode.training.dense_estimate"
_DENSE_BASIS = "tests/training/test_dense_basis.py::"
_DENSE_ESTIMATE = "tests/training/test_dense_estimate.py::"
_EQUAL_GRADIENT = "test_row_gradients__last_layer_of_a_direct_path__equal_back_propagation"
_FOLDED_LOSSES = "test_row_gradients__core_that_moves__has_the_losses_of_the_folded_weights"

BASES = (
    Mutant(
        name="queries-taken-for-writers",
        breaks="layers have a core whose outputs never reach the residual stream as they are",
        edits=(
            Edit(
                "sfnode.training.calibration.residual_writers",
                "writers_of",
                "[each for each in wide if along[_kind_of(each)] >= _ALONG]",
                "wide",
            ),
        ),
        detector=Tests(
            (
                "tests/training/test_writers.py::"
                "test_writers_of__attention_whose_queries_have_the_streams_width__output_projection_alone",
            )
        ),
    ),
    Mutant(
        name="leaps-at-the-first-token",
        breaks="directions of an input that all tokens attend to are as long as it is: runs of many authors diverge",
        edits=(Edit(_FOUND, "_leading", "scaled - cut * first_I.outer(first_I @ scaled)", "scaled"),),
        detector=Tests(
            (
                _DENSE_BASIS
                + "test_calibrate__first_token_a_thousand_times_as_long__v_does_not_make_it_longer_than_others",
            )
        ),
    ),
    Mutant(
        name="what-later-layers-do-forgotten",
        breaks="a layer's moves arrive by a third, and along other contrasts than the message says",
        edits=(Edit(_FOUND, "calibrate", "measured or [target_Hr] * len(moving)", "[target_Hr] * len(moving)"),),
        detector=Tests((_PATH + "test_calibrate__label_words__layers_have_sides_of_their_own",)),
    ),
    Mutant(
        name="first-u-taken-for-the-target",
        breaks="nodes measure texts along the U of one layer, and not along what the file names for it",
        edits=(Edit(_ESTIMATE, "row_gradients", "shared.target(bases)", "sides[0][0][:-1].t().to(dtype)"),),
        detector=Tests(
            (
                _DENSE_ESTIMATE
                + "test_row_gradients__u_of_a_layer_unlike_the_target__texts_are_measured_along_the_target",
            )
        ),
    ),
    Mutant(
        name="sum-of-derivatives-for-their-mean",
        breaks="the more rows measure the path of a move, the shorter each step is",
        edits=(Edit(_MEASURED, "measured_sides", "derivative_rH / len(data.examples)", "derivative_rH"),),
        detector=Tests((_PATH + "test_measured_sides__a_move_along_a_column__moves_the_logits_by_that_contrast",)),
    ),
    Mutant(
        name="long-columns-for-words-alike",
        breaks="a run whose label words are alike has a twelfth of its rate: its steps leap along long columns",
        edits=(Edit(_MEASURED, "measured_sides", "(_DAMPING * sizes[0]) ** 2", "0.0"),),
        detector=Tests((_PATH + "test_measured_sides__contrasts_that_hardly_arrive__get_short_columns",)),
    ),
    Mutant(
        name="leaps-before-completions",
        breaks="a run of completions has a sixtieth of its rate: at the prompt's tokens its steps are too long",
        edits=(Edit(_FOUND, "_leading", "if len(before_BI):", "if False:"),),
        detector=Tests(
            (_COMPLETIONS + "test_calibrate__tokens_before_completions_a_hundred_times_as_long__v_is_short_there",)
        ),
    ),
    Mutant(
        name="words-that-the-model-thinks-of",
        breaks="the basis of completions tells only words apart that the model alone would write",
        edits=(
            Edit(
                "sfnode.training.calibration.example_passes",
                "_Looking._read",
                "rows.targets[chosen], weights / 2",
                "likely_pV.argmax(dim=1), weights / 2",
            ),
        ),
        detector=Tests((_COMPLETIONS + "test_look_at__completions__half_of_the_spread_is_that_of_their_own_words",)),
    ),
    Mutant(
        name="decisions-drowned-by-words",
        breaks="the basis of short answers tells words apart and not prompts: runs end at one answer to everything",
        edits=(Edit(_FOUND, "calibrate", "_beginnings if is_short else _all_tokens", "_all_tokens"),),
        detector=Tests(
            (
                "tests/training/test_reward_estimate.py::test_calibrate__short_answers_that_begin_apart__"
                "v_has_length_one_at_the_token_where_they_begin",
            )
        ),
    ),
    Mutant(
        name="first-norm-taken-for-the-last",
        breaks="the basis has the lengths of another place of the model than the stream's end",
        edits=(
            Edit(_PROBE, "norm_at_the_end", "is_the_end and ", ""),
            Edit(_PROBE, "norm_at_the_end", "reversed(called)", "called"),
        ),
        detector=Tests(
            (_END + "test_norm_at_the_end__decoder_with_norms_after_its_layers__is_that_of_the_last_layer",)
        ),
    ),
    Mutant(
        name="encoders-trained",
        breaks="the padding of a batch changes what a model sees, and the estimate with it",
        edits=(Edit(_PROBE, "check_causal", "> _SAME *", "> 99 *"),),
        detector=Tests((_END + "test_check_causal__model_whose_tokens_see_later_ones__is_refused",)),
    ),
    Mutant(
        name="contrasts-of-unlike-lengths",
        breaks="the loss is bent more along some contrasts than along others, so no rate suits them all",
        edits=(Edit(_ESTIMATE, "contrasts", "math.sqrt(labels / ((column + 1) * (column + 2)))", "1.0"),),
        detector=Tests((_DENSE_ESTIMATE + "test_contrasts__any_number_of_labels__are_orthogonal_and_sum_to_nothing",)),
    ),
    Mutant(
        name="rate-never-lowered",
        breaks="a run has a rate with which its first steps raise the loss",
        edits=(Edit(_RATE, "suited_rate", "if is_stable(kept * rate):", "if is_stable(kept * rate) or kept:"),),
        detector=Tests((_DENSE_BASIS + "test_calibrate__rate_that_leaps_too_far__is_lowered",)),
    ),
    Mutant(
        name="rate-tried-for-one-step",
        breaks="a run of many labels leaps to and fro, further with each step",
        edits=(Edit(_RATE, "_steps_of", "_TRIAL_STEPS, 1.0)", "1, 1.0)"),),
        detector=Tests(
            (_DENSE_BASIS + "test_calibrate__rows_alike_with_two_of_many_labels__steps_do_not_leap_to_and_fro",)
        ),
    ),
    Mutant(
        name="rate-tried-on-rows-just-learnt",
        breaks="a run diverges: its steps lower the loss of their own rows and raise that of the next ones",
        edits=(
            Edit(
                _RATE,
                "suited_rate",
                "loss, gradient = passed(parts[step % len(parts)]",
                "loss, gradient = passed(parts[0]",
            ),
        ),
        detector=Tests((_DENSE_BASIS + "test_calibrate__steps_that_teach_what_the_next_rows_deny__rate_is_lowered",)),
    ),
    Mutant(
        name="rate-lowered-by-the-first-noise",
        breaks="a run whose labels are hard to tell gets a thirtieth of its rate",
        edits=(Edit(_RATE, "suited_rate", "loss < lowest + _RISE_MAX", "loss < min(1.0, lowest + _RISE_MAX)"),),
        detector=Tests(
            (_DENSE_BASIS + "test_calibrate__steps_down_noisy_gradients__may_be_worse_at_first_and_may_not_leap",)
        ),
    ),
    Mutant(
        name="rate-that-only-makes-worse",
        breaks="a run has a rate whose steps raise the loss for good",
        edits=(Edit(_RATE, "suited_rate", "return loss < 1.0", "return True"),),
        detector=Tests(
            (_DENSE_BASIS + "test_calibrate__steps_down_noisy_gradients__may_be_worse_at_first_and_may_not_leap",)
        ),
    ),
    Mutant(
        name="arriving-share-ignored",
        breaks="a run has a rate that suits only models whose later layers leave a move as it is",
        edits=(Edit(_RATE, "suited_rate", "rate /= min(max(fall / _SMALL, _ARRIVES[0]), _ARRIVES[1])", "fall -= 0"),),
        detector=Tests((_DENSE_BASIS + "test_calibrate__later_layers_that_change_a_move__are_in_the_rate",)),
    ),
    Mutant(
        name="curvature-too-small",
        breaks="a run has a rate with which its steps leap over the valley",
        edits=(Edit(_FOUND, "_Gradients.curvature", "** 2 / self._examples", "** 2 / self._examples**2"),),
        detector=Tests(
            (_DENSE_BASIS + "test_calibrate__any_direction_of_the_last_core__is_not_more_curved_than_it_says",)
        ),
    ),
    Mutant(
        name="candidates-of-no-example",
        breaks="every candidate counts as the right one",
        edits=(
            Edit(
                "sfnode.training.task.scoring",
                "candidate_residuals",
                "functional.one_hot(rows.labels, rows.options).to(scores_NC) - scores_NC.softmax(dim=1)",
                "torch.ones_like(scores_NC) - scores_NC.softmax(dim=1)",
            ),
        ),
        detector=Tests((f"{_DENSE_ESTIMATE}{_EQUAL_GRADIENT}",)),
    ),
    Mutant(
        name="completions-not-of-equal-weight",
        breaks="a long candidate moves the model more than a short one",
        edits=(Edit("sfnode.training.task.scoring", "candidate_residuals", "share_S / rows.lengths", "share_S / 1.0"),),
        detector=Tests((f"{_DENSE_ESTIMATE}{_EQUAL_GRADIENT}",)),
    ),
    Mutant(
        name="candidates-see-one-another",
        breaks="a candidate in one row with others is scored as if it followed them",
        edits=(
            Edit(
                "sfnode.training.task.candidates",
                "Sight.mask",
                "is_before_TT & ((self.part[:, None, :] == 0) | (self.part[:, None, :] == self.part[:, :, None]))",
                "is_before_TT & (self.part[:, None, :] >= -1)",
            ),
        ),
        detector=Tests(
            (
                "tests/training/test_candidates.py::test_shared_prompts__rows__are_one_for_each_example_and_give_the_same_losses",
            )
        ),
    ),
    Mutant(
        name="transposed-layers-fold-as-others",
        breaks="the weights of a layer that is stored as inputs x outputs move by the transpose",
        edits=(
            Edit(
                "sfnode.training.model.folding",
                "factors_of",
                "(v, product) if is_transposed else (product, v)",
                "(product, v)",
            ),
        ),
        detector=Tests((f"{_DENSE_ESTIMATE}{_FOLDED_LOSSES}",)),
    ),
    Mutant(
        name="messages-of-old-steps-counted-twice",
        breaks="a step whose coefficients change is in the worker's sum as it was, and as it is",
        edits=(
            Edit(
                "sfnode.training.estimator",
                "Estimator.set_coefficients",
                "flat - self._epochs.get(epoch, 0)",
                "flat",
            ),
        ),
        detector=Tests(
            ("tests/training/test_shared_model.py::test_session__steps_of_dense_cores__add_up_and_nothing_is_folded",)
        ),
    ),
    Mutant(
        name="shown-state-keeps-old-epochs",
        breaks="a learner that is shown a state without an epoch goes on with that epoch of the state before",
        edits=(
            Edit(
                "sfnode.training.estimator",
                "Estimator.show",
                "{*self._epochs, *coefficients.epochs()}",
                "coefficients.epochs()",
            ),
        ),
        detector=Tests(
            (
                "tests/training/test_estimator.py::"
                "test_estimator__shown_one_state_after_another__measures_what_a_fresh_one_does",
            )
        ),
    ),
    Mutant(
        name="simulated-nodes-measure-the-model-alone",
        breaks="nodes of a simulated run measure without what they hold, so that nothing adds up to a trained model",
        edits=(
            Edit(
                "sfnode.api.simulation",
                "_Swarm._measure",
                "learner.show(node.replica.coefficients())",
                "learner.show(Replica(self._manifest).coefficients())",
            ),
        ),
        detector=Tests(
            (
                "tests/api/test_simulation.py::"
                "test_simulation__replayed_from_its_records__has_the_bits_of_the_live_nodes[canonical]",
            )
        ),
    ),
    Mutant(
        name="adapter-of-the-transpose",
        breaks="an exported adapter of GPT-2 holds factors of the transposed update",
        edits=(Edit("sfnode.training.export.adapter", "export_adapter", " and not manifest.method.is_dense", ""),),
        detector=Tests(
            (
                "tests/training/test_export_adapter.py::"
                "test_export_adapter__dense_core__all_steps_are_one_product_and_exact[gpt2]",
            )
        ),
    ),
)
