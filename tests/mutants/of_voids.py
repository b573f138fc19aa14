"""Bugs by which old slots cost more than new ones: they may be filled late, or become void, at any time."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_BUCKETS = "protocol.ledger.digest_buckets"
_LEDGER_TESTS = "tests/protocol/test_record_store.py::"
_UNSUMMED_TESTS = "tests/protocol/test_unsummed.py::"
_EVALUATION_TESTS = "tests/storage/test_evaluations.py::test_read_state__best_step_was_measured_with_an_author_"
_NODE_TESTS = "tests/protocol/test_rare_paths.py::"
_TRAINER_TESTS = "tests/worker/test_trainer.py::"
_LOST_BEFORE = "test_trainer__worker_lost_before_it_measures__loses_the_step_and_comes_back"

VOIDS = (
    Mutant(
        name="old-slot-reads-its-bucket-back",
        breaks="a late slot, or a void one, reads a thousand records back where sixteen are hashed",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket.put",
                "dict(self.by_step(_bits_in(group_of(offset))))",
                "{each: held for each, held in self.by_step(self.held) if each in group_of(offset)}",
            ),
        ),
        detector=Tests((_LEDGER_TESTS + "test_ledger__slot_of_a_span_left_behind__costs_reading_one_group_back",)),
    ),
    Mutant(
        name="group-read-back-for-each-look",
        breaks="an old slot's group is read back three times: to look, to compare, to hash",
        edits=(Edit(_BUCKETS, "Bucket._read", "and self._archive.group == first", "and False"),),
        detector=Tests((_LEDGER_TESTS + "test_ledger__slot_of_a_span_left_behind__costs_reading_one_group_back",)),
    ),
    Mutant(
        name="every-old-epoch-at-once",
        breaks="one tick changes all the epochs of which anything waits: whoever voids old slots stops the node",
        edits=(
            Edit(
                "protocol.state.replica",
                "WaitingUpdates.take",
                "islice(self._epochs, self._epochs_per_tick)",
                "self._epochs",
            ),
        ),
        detector=Tests((_UNSUMMED_TESTS + "test_replica__voids_in_many_epochs__changes_two_of_them_a_tick",)),
    ),
    Mutant(
        name="epochs-at-rest-hashed-for-a-head",
        breaks="the next head hashes every epoch that has changed since the last one",
        edits=(Edit("protocol.state.replica", "Replica.sum_some", "self._coefficients.hash_resting()", "pass"),),
        detector=Tests((_UNSUMMED_TESTS + "test_replica__epochs_at_rest__are_hashed_before_the_digest_is_asked_for",)),
    ),
    Mutant(
        name="said-to-have-left-before-it-has",
        breaks="a result of a model that still has a part of an excluded author's updates counts as one without them",
        edits=(Edit("protocol.state.replica", "Replica.shown", "if not self.unsummed:", "if True:"),),
        detector=Tests(
            (_UNSUMMED_TESTS + "test_replica__excluded_author_not_yet_subtracted__is_not_said_to_have_left",)
        ),
    ),
    Mutant(
        name="stale-results-stand",
        breaks="the best step is chosen by results of a model that an exclusion has changed since",
        edits=(Edit("sfnode.storage.evaluations", "standing", "each.removed == ", "True or "),),
        detector=Tests((_EVALUATION_TESTS + "who_is_excluded_now__is_another",)),
    ),
    Mutant(
        name="state-digest-whatever-waits",
        breaks="a head computes the state digest however much waits to be summed",
        edits=(Edit("protocol.node.node", "Node._send_head", "if self.replica.is_summed else _NOT_SUMMED", ""),),
        detector=Tests(
            (_NODE_TESTS + "test_node__many_updates_wait_to_be_summed__tells_its_head_without_the_state_digest",)
        ),
    ),
    Mutant(
        name="not-summed-is-a-mismatch",
        breaks="a neighbour that says that it has not summed yet is taken for a broken machine",
        edits=(Edit("protocol.node.node", "Node._receive_head", " and head.state_digest != _NOT_SUMMED", ""),),
        detector=Tests((_NODE_TESTS + "test_node__neighbour_that_has_not_summed_yet__is_no_mismatch",)),
    ),
    Mutant(
        name="old-epochs-in-every-round",
        breaks="the worker folds its weights anew in every round, as long as anybody voids slots of theirs",
        edits=(Edit("sfnode.worker.trainer", "Trainer._estimate", "first if is_resting else 0", "0"),),
        detector=Tests(
            (_TRAINER_TESTS + "test_trainer__old_epoch_that_changes_all_the_time__is_sent_in_every_tenth_round",)
        ),
    ),
    Mutant(
        name="dense-core-of-ten-rounds-ago",
        breaks="a dense core trains on the model of some rounds ago, since all earlier steps count as old epochs",
        edits=(Edit("sfnode.worker.trainer", "Trainer._estimate", "0 if method.is_dense else ", ""),),
        detector=Tests((_TRAINER_TESTS + "test_trainer__dense_core__each_round_is_measured_on_all_updates_before_it",)),
    ),
    Mutant(
        name="job-taken-and-nobodys",
        breaks="a job becomes the trainer's when it is measured: lost before, its step is waited for for ever",
        edits=(
            Edit(
                "sfnode.worker.trainer",
                "Trainer._serve",
                "self.estimating = job.step if isinstance(job, events.StartEstimate) else None",
                "pass",
            ),
            Edit(
                "sfnode.worker.trainer",
                "Trainer._estimate",
                "request = messages.EstimateRequest(",
                "self.estimating, request = job.step, messages.EstimateRequest(",
            ),
        ),
        detector=Tests((_TRAINER_TESTS + _LOST_BEFORE,)),
    ),
)
