"""Keeps account of how much a node's noisy messages reveal of its rows, and of what further ones would add."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from protocol.crypto import Author
from protocol.run import Manifest
from sfnode.privacy import RowsOfStep, RowUses, delta_of, epsilon
from sfnode.worker_protocol import NoiseConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatistics:
    """Holds what the noise on this node's messages guarantees for each of its rows.

    Attributes:
        noise: the least multiplier of all messages.
        delta: of both epsilons.
        uses, epsilon: of the row that was used most, so far.
        uses_at_end, epsilon_at_end: the most that they can be at the run's end.
        epsilon_max: where the node stops measuring; None: nowhere.
    """

    noise: float
    delta: float
    uses: int
    epsilon: float
    uses_at_end: int
    epsilon_at_end: float
    epsilon_max: float | None

    def in_words(self) -> str:
        """Return both epsilons, and how many messages they are from."""
        limit = "" if self.epsilon_max is None else f"; it stops before {self.epsilon_max:g} (--epsilon-max)"
        return (
            f"noise {self.noise:g}: epsilon {self.epsilon:.1f} (delta {self.delta:.0e}), each row in at most "
            f"{self.uses} messages so far; at the end at most {self.epsilon_at_end:.1f}, {self.uses_at_end} messages"
            f"{limit}"
        )


class NoiseBudget:
    """Counts the uses of one node's rows, from its own messages in the ledger.

    Attributes:
        spent: why no further message is affordable, in words; empty while one is.
        statistics: None before the number of rows is known.
    """

    def __init__(
        self, manifest: Manifest, author: Author, config: NoiseConfig, sent: Callable[[], Sequence[RowsOfStep]]
    ) -> None:
        """Take a function that returns all messages that this node has sent, in all its lives."""
        self.spent = ""
        self.statistics: PrivacyStatistics | None = None
        self._manifest = manifest
        self._author = author
        self._config = config
        self._sent = sent
        self._has_asked_peers = False
        self._uses = RowUses(manifest, author, 0)
        self._at_end = (0, 0.0)

    async def begin(self, rows: int) -> PrivacyStatistics:
        """Count what was sent of a data file of ``rows`` rows; return it, with what the steps to come may add.

        OperatorError: OpenDP is not installed.
        """
        self._uses = uses = RowUses(self._manifest, self._author, rows)
        sent = self._sent()  # in this thread, as SQLite wants it
        first = 1 + max((step for step, _ in sent), default=-1)
        to_come = [(step, self._manifest.method.directions) for step in range(first, self._manifest.steps)]
        await trio.to_thread.run_sync(uses.add, sent)  # up to seconds, for tens of thousands of steps
        most = await trio.to_thread.run_sync(uses.most_with, to_come)
        self._at_end = most, self._epsilon(most)
        return self._state()

    async def admits(self, message: RowsOfStep) -> bool:
        """Return whether the node may send this message; if not, `spent` says why."""
        if not self._has_asked_peers:  # they have returned this node's own messages by now, if its disk had lost some
            self._has_asked_peers = True
            await self.begin(self._uses.rows)
        limit = self._config.epsilon_max
        if limit is not None and (would := self._epsilon(self._uses.most_with([message]))) > limit:
            self.spent = f"a further message would make epsilon {would:.2f}, and --epsilon-max is {limit:g}"
        return not self.spent

    def spend(self, message: RowsOfStep) -> None:
        """Count a message that the node is about to send."""
        self._uses.add([message])
        self._state()

    def _state(self) -> PrivacyStatistics:
        found = self.statistics = PrivacyStatistics(
            noise=self._config.multiplier,
            delta=delta_of(self._uses.rows),
            uses=self._uses.most,
            epsilon=self._epsilon(self._uses.most),
            uses_at_end=self._at_end[0],
            epsilon_at_end=self._at_end[1],
            epsilon_max=self._config.epsilon_max,
        )
        return found

    def _epsilon(self, uses: int) -> float:
        return epsilon(self._config.multiplier, uses, delta_of(self._uses.rows))
