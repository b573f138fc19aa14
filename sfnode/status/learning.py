"""Judge whether a run learns: whether its figures get better or worse by more than their noise, and why not."""

import math
from collections.abc import Sequence
from itertools import pairwise

from sfnode.quality_figures import Quality
from sfnode.status.node_status import Status
from sfnode.status.status_detail import LossPoint
from sfnode.storage import EvaluatedStep, evaluations

_HELD_OUT_MIN = 6  # points: fewer do not show their noise
_TRAINING_MIN = 40  # points; each is the loss of a few rows, so more are needed
_PART = 5  # the first and the last fifth are compared
_NOISES = 2.0  # a change of less than two standard errors may be chance
_LATER = 3  # how many evaluations after the best one decide whether the run gets worse
_WORSE = 1.05  # their mean loss, as a multiple of the best loss
_REWARD_LOST = 0.05  # or the part of the best mean reward that is gone
_ONE_ANSWER = 0.95  # the share of the prompts from which one answer is an answer to everything
_SHARE_GAINED = 0.25  # or what the commonest answer has gained since the best step, where rewards have fallen
_SOLVED = 0.98  # a mean reward that can hardly rise


def describe_learning(status: Status) -> str:
    """Return why the run does not seem to learn; empty where it learns or nothing is known.

    The held-out loss decides if this node measures it often enough, else the loss of its training batches. Of rewards,
    the last evaluations are compared with the first, the model alone: a rule may be learnt in a tenth of the run.
    """
    if status.detail is None or not status.training.is_training:
        return ""
    curve, quality = status.detail.curve, Quality(status.life.is_rewarded, status.life.names_answers)
    if said := one_answer_in_words(curve.evaluations):
        return said
    held_out = [LossPoint(step=each.step, loss=each.loss) for each in curve.evaluations]
    if len(held_out) >= _HELD_OUT_MIN:
        return _complaint("held-out loss", held_out, quality, first=1 if quality.is_reward else None)
    if len(curve.losses) >= _TRAINING_MIN:
        return _complaint("training loss", curve.losses, quality)
    return ""


def _complaint(what: str, points: Sequence[LossPoint], quality: Quality, first: int | None = None) -> str:
    losses = [point.loss for point in points]
    start, end = _ends(losses, first)
    if has_fallen(losses, first) or (quality.is_reward and quality.value(end) >= _SOLVED):
        return ""
    steps = f"since step {points[0].step} ({quality.figure(start, 3)}, now {quality.figure(end, 3)})"
    if not quality.is_reward:
        return f"not learning: the {what} has not fallen by more than its noise {steps}"
    is_held_out = what.startswith("held-out")
    figure = f"{quality.name} on held-out data" if is_held_out else f"{quality.training_name} in training"
    return f"not learning: the {figure} has not risen by more than its noise {steps}"


def has_fallen(losses: Sequence[float], first: int | None = None) -> bool:
    """Return whether the mean of the last fifth is below that of the first by more than two standard errors.

    The noise is estimated from neighbouring points: the variance of one is half the mean square of their differences.
    ``first``: compare with so few of the first points. None: a fifth of all.
    """
    start, end = _ends(losses, first)
    variance = sum((after - before) ** 2 for before, after in pairwise(losses)) / (2 * (len(losses) - 1))
    means = 1 / (first or _part(losses)) + 1 / _part(losses)  # the variances of both means, of one point's
    return start - end > _NOISES * math.sqrt(variance * means)


def _ends(losses: Sequence[float], first: int | None) -> tuple[float, float]:
    count = _part(losses)
    begun = losses[: first or count]
    return sum(begun) / len(begun), sum(losses[-count:]) / count


def _part(losses: Sequence[float]) -> int:
    return max(1, len(losses) // _PART)


def has_become_worse(measured: Sequence[EvaluatedStep]) -> bool:
    """Return whether the last three evaluations, all after the best, have a mean loss above 105 % of the best loss.

    Of rewards, whether a twentieth of the best mean reward is gone, and more than chance explains: near the whole
    reward, a twentieth of the loss is a fraction of one answer.
    """
    best = evaluations.best_of(measured)
    later = [each.loss for each in measured[-_LATER:] if best is not None and each.step > best.step]
    if best is None or len(later) < _LATER:
        return False
    mean = sum(later) / _LATER
    if best.reward is None:
        return mean > _WORSE * best.loss
    return mean - best.loss > max(_REWARD_LOST * best.reward, _noise(best))


def one_answer_in_words(measured: Sequence[EvaluatedStep]) -> str:
    """Return that the model gives one answer to nearly all held-out prompts, where it is often wrong; else nothing.

    Also where an answer spreads while the rewards fall below those of the best step by more than chance.
    """
    best, last = evaluations.best_of(measured), measured[-1] if measured else None
    if best is None or last is None or last.spread is None or last.reward is None or last.step == 0:
        return ""
    share, noise = last.spread.share, _noise(last)
    is_constant = share >= _ONE_ANSWER and last.reward < share - noise
    before = best.spread.share if best.spread else share
    is_spreading = share > before + _SHARE_GAINED and last.loss - best.loss > noise
    if not is_constant and not is_spreading:
        return ""
    since = f", after {1 - best.loss:.2f} at step {best.step}" if best.step < last.step else ""
    why = "drawn answers teach nothing where all are the same" if is_constant else "comes nearer to one for everything"
    return (
        f"the model gives one answer to {100 * share:.1f} % of the prompts (mean reward {last.reward:.2f}{since}), and "
        f"{why}. If this stays so, make a run with balanced prompts or a lower --learning-rate"
    )


def better_before_in_words(measured: Sequence[EvaluatedStep]) -> str:
    """Return which step had a better model than the last one, where that is no chance; else nothing."""
    best = evaluations.best_of(measured)
    if best is None or best.step == measured[-1].step:
        return ""
    if not has_become_worse(measured) and not one_answer_in_words(measured):
        return ""
    quality, last = Quality(best.reward is not None), measured[-1]
    figures = f"{quality.figure(last.loss)} at step {last.step}, {quality.figure(best.loss)} at step {best.step}"
    return f"the {quality.name} on held-out data was better before: {figures}. Take that model with --at-step best"


def _noise(found: EvaluatedStep) -> float:
    # The variance of rewards in 0...1 is at most that of right or wrong; one answer more than there are, so never 0
    return _NOISES * math.sqrt((found.loss * (1 - found.loss) + 1 / (found.rows + 1)) / (found.rows + 1))
