"""The training loss over the steps, thinned out as it grows: nothing else in a node keeps it."""

from __future__ import annotations

from typing import Final

_POINTS_MAX: Final = 400  # a chart on a desktop has about two pixels for each


class LossHistory:
    """Points (step, loss) of one process, at most `_POINTS_MAX`; when it is full, every second one goes."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._stride = 1

    def take(self, step: int, loss: float) -> None:
        """Keep a point unless its step has one, or lies too near to the last."""
        if self.points and step < self.points[-1][0] + self._stride:
            return
        self.points.append((step, round(loss, 5)))
        if len(self.points) > _POINTS_MAX:
            self.points = self.points[::2]
            self._stride = max(1, (self.points[-1][0] - self.points[0][0]) // len(self.points))
