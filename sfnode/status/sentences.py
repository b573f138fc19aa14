"""Put a node's status into words, for `sfnode status`, the progress line and other views."""

import math
import time

from sfnode.quality_figures import Quality
from sfnode.reporter import counted, format_rate, format_seconds
from sfnode.status.node_status import Status
from sfnode.storage import evaluations

_UNIX_S_MAX = 1e11  # the year 5138
_LEFT_S_MAX = 100 * 86_400.0  # a longer time would be a guess


class StatusWords:
    """Puts one status into words. A text is empty where there is nothing to say."""

    def __init__(self, status: Status) -> None:
        self._status = status

    @property
    def quality(self) -> Quality:
        """Return how the run's figures are called and printed."""
        return Quality(self._status.life.is_rewarded, self._status.life.names_answers)

    @property
    def slips(self) -> str:
        """Return how many slips there were and how to report them."""
        slips = self._status.life.slips
        if not slips.count:
            return ""
        text = f"{counted(slips.count, 'slip')} of our own (the last: {slips.last}); the node has gone on"
        return f"{text}. Please report it with the lines `slip` of the node's log: docs/troubleshooting.md"

    # --- where is it in the run?

    @property
    def progress_line(self) -> str:
        """Return the progress line.

        Such as "14:03:22 step 120/500, loss 0.520, 840 updates, 7 peers, 3.1 kB/s, 1.5 steps/s, 9 s left".
        """
        status, detail, life = self._status, self._status.detail, self._status.life
        loss = status.training.loss
        is_time = 0 <= life.time < _UNIX_S_MAX
        clock = time.strftime("%H:%M:%S", time.localtime(life.time)) if is_time else ""
        parts = [
            f"{clock} {self.stage}".strip(),
            f"paused: {life.paused}" if life.paused and not status.node.is_finished else "",
            life.model.text if life.model is not None else "",
            "" if loss is None else f"{self.quality.training_name} {self.quality.figure(loss, 3)}",
            counted(status.ledger.updates, "update"),
            counted(status.node.peers, "peer"),
        ]
        if detail is not None:
            parts += [format_rate(detail.bytes_in_per_s + detail.bytes_out_per_s), self.directions, self.pace]
            parts.append(self.time_left)
        return ", ".join(part for part in parts if part)

    @property
    def stage(self) -> str:
        """Return where the node is in the run."""
        status, node = self._status, self._status.node
        if status.is_catching_up:
            return f"catching up {100 * status.ledger.updates // node.catching_up} %"
        if node.is_finished:
            is_author = node.own_updates or status.training.is_training
            return f"{f'finished {node.steps} steps' if is_author else 'the run is finished'}, {self.end}"
        if status.may_contribute:
            return f"step {node.step}/{node.steps}"
        what = "following" if status.training.is_training else "relaying"
        run_step = max(node.step, status.detail.progress.run_step if status.detail else 0)
        return f"{what}, the run is at step {run_step}/{node.steps}"

    @property
    def end(self) -> str:
        """Return whether a finished node equals its neighbours, or what it waits for before it may leave."""
        end = self._status.end
        if end.is_over:
            equal = f"equal with {counted(end.equal_peers, 'peer')}" if end.equal_peers else ""
            full = f"apart for good from {counted(end.full_peers, 'peer')}, as the author table is full"
            return ", ".join(text for text in (equal, full if end.full_peers else "") if text) or "alone"
        missing = [
            counted(end.differing_peers, "peer") + " to become equal with" if end.differing_peers else "",
            counted(end.awaited_authors, "author") + " at work" if end.awaited_authors else "",
        ]
        found = [text for text in missing if text]
        others = "others at work further away" if self._status.node.peers else "a neighbour to compare with"
        return f"waiting for {' and '.join(found) or others}"

    @property
    def pace(self) -> str:
        """Return steps per second, or per minute if slower; empty while unknown, catching up or finished."""
        status = self._status
        pace = status.detail.steps_per_s if status.detail else None
        if pace is None or not 0 < pace < math.inf or status.node.is_finished or status.is_catching_up:
            return ""
        return f"{pace:.1f} steps/s" if pace >= 1 else f"{60 * pace:.1f} steps/min"

    @property
    def directions(self) -> str:
        """Return how many of a round's measurements a slow machine makes; empty where it makes all."""
        progress = self._status.detail.progress if self._status.detail else None
        if progress is None or not 0 < progress.directions < progress.directions_max:
            return ""
        return f"{progress.directions} of {progress.directions_max} measurements" if self._status.may_contribute else ""

    @property
    def time_left(self) -> str:
        """Return the time left to the run's last step or, while catching up, until that is done; empty: unknown."""
        left_s = self._status.detail.left_s if self._status.detail else None
        if left_s is None or not 0 < left_s < _LEFT_S_MAX or self._status.node.is_finished:
            return ""
        left = format_seconds(left_s)
        return f"caught up in {left}" if self._status.is_catching_up else f"{left} left"

    # --- what does it hold?

    @property
    def peers(self) -> str:
        """Return how many peers there are, and how many recently held the same updates as this node."""
        detail = self._status.detail
        if detail is None or not detail.peers:
            return counted(self._status.node.peers, "peer")
        equal = sum(peer.is_equal for peer in detail.peers)
        return f"{counted(len(detail.peers), 'peer')}, equal with {equal} of them in the last 30 s"

    @property
    def own_updates(self) -> str:
        """Return the number of this node's updates, their share of all, and how many peers are known to hold them."""
        detail, updates = self._status.detail, self._status.ledger.updates
        if detail is None:
            return f"{self._status.node.own_updates:,}"
        own = detail.progress.own_updates  # counted a moment after all: one more may be among them
        text = f"{own:,} ({100 * own / max(own, updates):.1f} % of all)" if updates else f"{own:,}"
        held = [peer.own_updates_min for peer in detail.peers if peer.own_updates_min]
        if held:
            text += f"; {counted(len(held), 'peer')} of {len(detail.peers)} known to hold {min(held):,} or more of them"
        return text

    @property
    def evaluations(self) -> str:
        """Return the last held-out figures, and the best; empty where nothing was measured."""
        curve = self._status.detail.curve if self._status.detail else None
        if curve is None or not curve.evaluations or curve.best is None:
            return ""
        last, best, quality = curve.evaluations[-1], curve.best, self.quality
        what = f"{quality.name} " if quality.is_reward else ""
        text = f"{what}{quality.figure(last.loss)}, {quality.share(last.accuracy)} at step {last.step}"
        is_best = last.step == best.step
        text += " (the best so far)" if is_best else f"; best {quality.figure(best.loss)} at step {best.step}"
        return text if last.spread is None else f"{text}; {last.spread.in_words()}"

    @property
    def gain(self) -> str:
        """Return what the run has given, or how to measure it; empty where nobody has learned anything yet."""
        gain = self._status.detail.curve.gain if self._status.detail else None
        if gain is None:
            return evaluations.HOW_TO_MEASURE if self._status.ledger.updates else ""
        return gain.in_words()
