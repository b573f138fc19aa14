"""Keep the losses of a node, on held-out data and of its batches, and warn if the run gets worse."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from protocol.errors import OperatorError
from protocol.ledger import Roster
from sfnode.quality_figures import Quality
from sfnode.reporter import Reporter, counted
from sfnode.status import CurveStatistics, LossPoint, learning, thinned
from sfnode.storage import DataDirectory, EvaluatedStep, Gain, evaluations, pasteable

_EVALUATIONS_MAX = 64  # in a status
_POINTS_MAX = 128  # twice the width of a sparkline; ten bytes a point in the file
_USUAL = Quality(is_reward=False)


class LossSeries:
    """Keeps losses by step. When full, it merges pairs, so that each point is the mean of equally many losses."""

    def __init__(self) -> None:
        self._points: list[LossPoint] = []
        self._pending: list[float] = []
        self._losses_per_point = 1

    @property
    def points(self) -> tuple[LossPoint, ...]:
        """Return fewer than `_POINTS_MAX` points, by step."""
        return tuple(self._points)

    def take(self, step: int, loss: float) -> None:
        self._pending.append(loss)
        if len(self._pending) < self._losses_per_point:
            return
        self._points.append(LossPoint(step=step, loss=sum(self._pending) / len(self._pending)))
        self._pending.clear()
        if len(self._points) >= _POINTS_MAX:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [LossPoint(step=b.step, loss=(a.loss + b.loss) / 2) for a, b in pairs]
            self._losses_per_point *= 2


class LearningCurve:
    """Holds the evaluations of one node, including those of its earlier lives, and the losses of this life.

    Of many evaluations it keeps the first, the best, the newest and some between, evenly over the steps. Those of
    models that the run has no longer, because authors were excluded since, stay in the file alone.

    Args:
        data_dir: the node's.
        reporter: receives a warning if the run gets worse, once for each best step; and if a file cannot be used.
        roster: says whose updates have been taken out.
        quality: how the run's figures are called.
    """

    def __init__(self, data_dir: DataDirectory, reporter: Reporter, roster: Roster, quality: Quality = _USUAL) -> None:
        self._data_dir, self._reporter, self._roster, self._quality = data_dir, reporter, roster, quality
        self._stale = 0
        self._warned_of: EvaluatedStep | None = None
        self._is_one_answer = False
        self.evaluations: list[EvaluatedStep] = []
        self.losses = LossSeries()
        with self._reported():
            self.evaluations = data_dir.evaluations.read()

    def statistics(self) -> CurveStatistics:
        """Return the curves, short enough for a status."""
        standing = evaluations.standing(self.evaluations, self._roster)
        if (stale := len(self.evaluations) - len(standing)) > self._stale:
            text = f"the model is another one since an exclusion: {counted(stale, 'result')} on held-out data "
            self._reporter.event("evaluations_stale", f"{text}no longer count", evaluations=stale)
        self._stale, best = stale, evaluations.best_of(standing)
        gain = self._measured_gain() or evaluations.gain_of(standing)
        return CurveStatistics(
            evaluations=tuple(each.without_answers() for each in thinned(standing, _EVALUATIONS_MAX)),
            best=best and best.without_answers(),
            gain=gain and gain.without_answers(),
            losses=tuple(
                replace(each, reward=reward, chance=chance)
                for each in self.losses.points
                for reward, chance in (self._quality.of_training(each.loss),)
            ),
        )

    def _measured_gain(self) -> Gain | None:
        """Return what `sfnode eval --compare` has left in the directory; report a damaged file once."""
        try:
            return self._data_dir.gain.standing(self._roster)
        except OperatorError as error:
            self._reporter.event_once(logging.WARNING, "gain_file", str(error))
            return None

    def take(self, fresh: list[EvaluatedStep]) -> None:
        """Empty ``fresh``, and add its evaluations; they replace earlier ones of the same steps."""
        while fresh:
            evaluation = fresh.pop(0)
            self.evaluations = evaluations.kept_with(evaluation, self.evaluations, self._roster)
            with self._reported():
                self._data_dir.evaluations.write(self.evaluations)
            self._warn(evaluation)

    def _warn(self, evaluation: EvaluatedStep) -> None:
        standing = evaluations.standing(self.evaluations, self._roster)
        best, quality, said = evaluations.best_of(standing), self._quality, learning.one_answer_in_words(standing)
        if said and not self._is_one_answer:
            self._reporter.event_at(logging.WARNING, "one_answer", said, step=evaluation.step)
        self._is_one_answer = bool(said)
        if best is not None and best != self._warned_of and learning.has_become_worse(standing):
            self._warned_of = best
            text = (
                f"the {quality.name} on held-out data has {'fallen' if quality.is_reward else 'risen'} from "
                f"{quality.figure(best.loss, 3)} at step {best.step} to {quality.figure(evaluation.loss, 3)}. "
                "The model of that step can still be had: "
                f"{pasteable('sfnode export --data-dir', self._data_dir, '--at-step', best.step)} --out FOLDER"
            )
            fields = {"best_step": best.step, "best_loss": best.loss, "loss": evaluation.loss}
            self._reporter.event_at(logging.WARNING, "getting_worse", text, step=evaluation.step, **fields)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report the failure of a file operation, and go on."""
        try:
            yield
        except OperatorError as error:
            self._reporter.event_at(logging.WARNING, "evaluations_file", str(error), reason=str(error))
