"""A node's results on held-out data, in files next to the ledger: step by step, and what the run has given."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from protocol.errors import OperatorError
from protocol.ledger import Roster
from protocol.schema import Malformed, from_json_untrusted, to_plain
from sfnode.quality_figures import AnswerSpread, Quality, SampleAnswer
from sfnode.storage.disk import read_bytes, write_json

BEST_STEP: Literal["best"] = "best"
AtStep = int | Literal["best"]
_KEPT_MAX = 512  # the file is written at each evaluation, and a page is as wide
_NEWEST = 8  # which are never thinned out: they say whether the run gets worse
_Content = TypeVar("_Content")

# What a model is called wherever it is measured
ALONE = "the model alone"
NOW = "the run now"
OWN_ALONE = "own data alone"
HOW_TO_MEASURE = f"`sfnode eval --compare` measures {ALONE}, {NOW} and {OWN_ALONE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedStep:
    """Holds the result for the model after all steps before ``step``.

    Attributes:
        accuracy: 0...1.
        loss: mean over the rows, in nats; where the run learns from rewards, one minus the mean reward.
        reward: mean over the rows; None where the run does not learn from rewards.
        answers: to the first rows; kept for few steps. spread: how unlike all answers are; None where there are none.
        removed: digest of the exclusions that reached below the step (`Roster.removals`); empty: none did.
    """

    step: int
    accuracy: float
    loss: float
    rows: int
    reward: float | None = None
    answers: tuple[SampleAnswer, ...] = ()
    spread: AnswerSpread | None = None
    removed: str = ""

    @property
    def figure(self) -> str:
        """Return the accuracy or the mean reward as text."""
        return f"{100 * self.accuracy:.1f} %" if self.reward is None else f"{self.reward:.2f}"

    def without_answers(self) -> "EvaluatedStep":
        """Return the figures alone: answers show parts of rows that may be private."""
        spread = None if self.spread is None else replace(self.spread, commonest="")
        return replace(self, answers=(), spread=spread, removed="")

    def in_words(self) -> str:
        """Return the accuracy or, of rewards, their mean and the share of whole ones."""
        if self.reward is None:
            return self.figure
        return f"mean reward {self.figure} ({Quality(is_reward=True).share(self.accuracy)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Holds what the run has given to a node, measured on the same rows.

    Attributes:
        before: the model alone.
        own: a model that has learned from the node's own examples alone, in as many steps; None: not measured.
        after: the model of the run.
        is_public: whether anybody may see the rows.
    """

    before: EvaluatedStep
    own: EvaluatedStep | None
    after: EvaluatedStep
    is_public: bool = False

    def without_answers(self) -> "Gain":
        """Return the figures alone: answers show parts of rows that may be private."""
        own = None if self.own is None else self.own.without_answers()
        return replace(self, before=self.before.without_answers(), own=own, after=self.after.without_answers())

    def figures(self) -> list[tuple[str, EvaluatedStep]]:
        """Return what was measured, by the names that all commands and pages use."""
        named = ((ALONE, self.before), (NOW, self.after), (OWN_ALONE, self.own))
        return [(name, found) for name, found in named if found is not None]

    def in_short(self) -> str:
        """Return the accuracies or mean rewards in a line of a screen."""
        return ", ".join(f"{name} {found.figure}" for name, found in self.figures())

    def in_words(self) -> str:
        """Return the accuracies or mean rewards, the number of rows, the step, and how to measure what is missing."""
        rest = "" if self.own is not None else f"; `sfnode eval --compare` measures {OWN_ALONE}, too"
        text = ", ".join(f"{name} {found.in_words()}" for name, found in self.figures())
        return f"{text} ({self.after.rows:,} held-out rows, step {self.after.step}{rest})"


class GainFile:
    """Reads and writes the last comparison by ``sfnode eval --compare``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def standing(self, roster: Roster) -> Gain | None:
        """Return the gain, if it is of the model that the run still has at its step. OperatorError as for `read`."""
        gain = self.read()
        return gain if gain and standing([gain.after], roster) else None

    def read(self) -> Gain | None:
        """Return the gain; None if there is no file. OperatorError: the file cannot be read."""
        return _read(self._path, Gain, "the gain", "`sfnode eval --compare` writes it anew")

    def write(self, gain: Gain) -> None:
        """Replace the file. OperatorError if it cannot be written."""
        write_json(self._path, to_plain(gain, as_rows=False))


class EvaluationsFile:
    """Reads and writes the evaluations of one node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[EvaluatedStep]:
        """Return the evaluations by step; none if there is no file. OperatorError: the file cannot be read."""
        lost = "only the best step so far is forgotten with it"
        found = _read(self._path, tuple[EvaluatedStep, ...], "evaluations", lost)
        return sorted(found or (), key=lambda each: each.step)

    def write(self, evaluations: Sequence[EvaluatedStep]) -> None:
        """Replace the file. OperatorError if it cannot be written."""
        write_json(self._path, [asdict(each) for each in evaluations])

    def step_at(self, at_step: AtStep | None, roster: Roster) -> int | None:
        """Return the number of a step, also for `BEST_STEP`. OperatorError: nothing was measured that still stands."""
        if at_step != BEST_STEP:
            return at_step
        found = self.read()
        still = standing(found, roster)
        best = best_of(still)
        # The model alone always stands: it is no best step where all that was trained is stale
        if best is None or (len(still) < len(found) and not still[-1].step):
            why = "measured nothing on held-out data" + ", of the model as it is since an exclusion" * bool(found)
            raise OperatorError(
                f"{self._path.parent}: no best step is known, because this node {why}. Give the number of a step; or "
                "start nodes with --eval-data and --eval-every"
            )
        return best.step


def removed_before(removals: Sequence[tuple[int, str]], step: int) -> str:
    """Return the digest of those of a roster's removals that reach below ``step``; empty where none does."""
    place = bisect_left(removals, (step, ""))
    return removals[place - 1][1] if place else ""


def standing(found: Sequence[EvaluatedStep], roster: Roster) -> list[EvaluatedStep]:
    """Return the evaluations of models that the run still has: since then, nobody's updates have left their steps."""
    removals = roster.removals()
    return [each for each in found if each.removed == removed_before(removals, each.step)]


def _read(path: Path, kind: type[_Content], what: str, without: str) -> _Content | None:
    """Return what a file holds; None if there is none. OperatorError, which says what is so ``without`` the file."""
    if not path.exists():
        return None
    try:
        return from_json_untrusted(kind, read_bytes(path, what), what)
    except Malformed:
        raise OperatorError(f"{path} is damaged. Remove it: {without}") from None


def kept_with(fresh: EvaluatedStep, found: Sequence[EvaluatedStep], roster: Roster) -> list[EvaluatedStep]:
    """Return what is kept of evaluations by step, with a fresh one, which replaces that of its step.

    Too many leave the first of each of half as many equal parts, or fewer, the newest and the best.
    """
    by_step = sorted([*(each for each in found if each.step != fresh.step), fresh], key=lambda each: each.step)
    if len(by_step) > _KEPT_MAX:
        # Two steps, or four, and so on: each part is two earlier ones together, whose first is still there.
        width = 1 << (by_step[-1].step // (_KEPT_MAX // 2)).bit_length()
        of_parts = {each.step // width: each for each in reversed(by_step)}
        steps = {*(each.step for each in of_parts.values()), *(each.step for each in by_step[-_NEWEST:])}
        best = best_of(standing(by_step, roster))
        by_step = [each for each in by_step if each.step in steps or each is best]
    # Answers are kept of the first and the last alone: the file is written at each evaluation
    return [by_step[0], *(replace(each, answers=()) for each in by_step[1:-1]), *by_step[1:][-1:]]


def best_of(evaluations: Sequence[EvaluatedStep]) -> EvaluatedStep | None:
    """Return the evaluation with the least loss or the most reward, the earliest of several; None if there are none."""
    return min(evaluations, key=lambda each: each.loss, default=None)


def gain_of(evaluations: Sequence[EvaluatedStep]) -> Gain | None:
    """Return the gain from the first evaluation to the last; None if the first is not of the model alone."""
    if not evaluations or evaluations[0].step:
        return None
    return Gain(before=evaluations[0], own=None, after=evaluations[-1])
