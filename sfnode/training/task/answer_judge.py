"""Say how good the answers are that a model wrote: tokens to texts, texts to rewards."""

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from protocol.run import RewardRule, TaskKind, TaskSpec, parse_reward
from sfnode.rewards import Checker, RewardCommand

Fields = Sequence[tuple[str, object]]


class AnswerJudge:
    """Reads answers with a model's tokenizer, and checks them by a run's rule, or by a command of the node's own.

    Attributes:
        stops: tokens that end a text: the tokenizer's, if it has one, and those of the model's settings.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        rule: RewardRule,
        command: str | None = None,
        stops: frozenset[int] = frozenset(),
    ) -> None:
        self.rule = rule
        self._tokenizer = tokenizer
        self._command = None if command is None else RewardCommand(command)
        self._checker = self._command or Checker(rule)
        stop = tokenizer.eos_token_id
        self.stops = stops | {stop} if isinstance(stop, int) else stops

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerBase, task: TaskSpec, command: str | None = None, stops: Iterable[int] = ()
    ) -> "AnswerJudge | None":
        """Make the judge of a task's answers; None where a task has labels or texts."""
        if task.kind is not TaskKind.REWARD:
            return None
        return cls(tokenizer, parse_reward(task.completion), command, frozenset(stops))

    def text(self, tokens: Sequence[int]) -> str:
        """Return an answer's text, without special tokens and white space at its ends."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def reward(self, text: str, has_ended: bool, fields: Fields) -> float:
        """Return how good an answer to a row with these fields is, 0 to 1."""
        return self._checker.reward(text, has_ended, dict(fields))

    def close(self) -> None:
        """End the node's own command, if there is one. The next answer starts it again."""
        if self._command is not None:
            self._command.close()
