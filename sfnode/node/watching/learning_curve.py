"""Keeps the worker's results on held-out data, finds the best step, and warns if the run gets worse."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable

from protocol.errors import OperatorError
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, EvaluatedStep, best_of, has_become_worse


class LearningCurve:
    """Holds the evaluations of one node, including those of its earlier lives.

    Args:
        data_dir: the node's.
        reporter: receives a warning if the run gets worse, once for each best step; and if the file cannot be kept.
    """

    def __init__(self, data_dir: DataDirectory, reporter: Reporter) -> None:
        self._data_dir, self._reporter = data_dir, reporter
        self._warned_of: EvaluatedStep | None = None
        self.evaluations: list[EvaluatedStep] = []
        self._try(self._read)

    def take(self, fresh: list[EvaluatedStep]) -> None:
        """Empty ``fresh``, and add its evaluations; they replace earlier ones of the same steps."""
        while fresh:
            self._add(fresh.pop(0))

    def _add(self, evaluation: EvaluatedStep) -> None:
        others = [each for each in self.evaluations if each.step != evaluation.step]
        self.evaluations = sorted([*others, evaluation], key=lambda each: each.step)
        self._try(self._write)
        self._warn(evaluation)

    def _warn(self, evaluation: EvaluatedStep) -> None:
        best = best_of(self.evaluations)
        if best is not None and best != self._warned_of and has_become_worse(self.evaluations):
            self._warned_of = best
            text = (
                f"the loss on held-out data has risen from {best.loss:.3f} at step {best.step} to "
                f"{evaluation.loss:.3f}. "
                "The model of that step can still be had: sfnode export --data-dir "
                f"{shlex.quote(str(self._data_dir))} --at-step {best.step} --out FOLDER"
            )
            fields = {"best_step": best.step, "best_loss": best.loss, "loss": evaluation.loss}
            self._reporter.event_at(logging.WARNING, "getting_worse", text, step=evaluation.step, **fields)

    def _read(self) -> None:
        self.evaluations = self._data_dir.evaluations.read()

    def _write(self) -> None:
        self._data_dir.evaluations.write(self.evaluations)

    def _try(self, action: Callable[[], None]) -> None:
        """Run a file operation; report its failure, and go on."""
        try:
            action()
        except OperatorError as error:
            self._reporter.event_at(logging.WARNING, "evaluations_file", str(error), reason=str(error))
