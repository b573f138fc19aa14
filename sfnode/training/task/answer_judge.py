"""Say how good the answers are that a model wrote: tokens to texts, texts to rewards."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run import RewardRule, TaskKind, TaskSpec, parse_reward
from sfnode.quality_figures import sample_prompt
from sfnode.rewards import Checker, RewardCommand
from sfnode.training.model import loading

Fields = Sequence[tuple[str, object]]
RewardFunction = Callable[[str, Mapping[str, object]], float]  # of an answer, and of its row's fields


class AnswerJudge:
    """Reads answers with a model's tokenizer, and checks them by a run's rule, or by a check of the node's own.

    Attributes:
        own: the command or function that says how good answers are in place of the rule; None: the rule does.
        on_answer: is called before each answer is judged: a command takes long without computing.
        stops: tokens that end a text: the tokenizer's, if it has one, and those of the model's settings.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        rule: RewardRule,
        own: str | RewardFunction | None = None,
        stops: frozenset[int] = frozenset(),
    ) -> None:
        """Take the model's tokenizer and the run's rule; ``own``: a command or a function in its place."""
        self.rule, self.own = rule, own
        self.on_answer: Callable[[], None] = lambda: None
        self._tokenizer = tokenizer
        self._function = None if isinstance(own, str) else own
        self._command = RewardCommand(own) if isinstance(own, str) else None
        self._checker = self._command or Checker(rule)
        stop = tokenizer.eos_token_id
        self.stops = stops | {stop} if isinstance(stop, int) else stops

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        task: TaskSpec,
        own: str | RewardFunction | None = None,
        stops: Iterable[int] = (),
    ) -> "AnswerJudge | None":
        """Make the judge of a task's answers; None where a task has labels or texts. ``own``: as above."""
        if task.kind is not TaskKind.REWARD:
            return None
        return cls(tokenizer, parse_reward(task.completion), own, frozenset(stops))

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones. `strip` it to show it: the rule has its own white space."""
        return loading.decoded(self._tokenizer, tokens)

    def asked(self, tokens: Sequence[int]) -> str:
        """Return a prompt in a line as people wrote it, without the marks and the last role of a chat template."""
        groups = groupby(tokens, set(self._tokenizer.all_special_ids).__contains__)
        parts = [text for is_mark, each in groups if not is_mark and (text := self.text(tuple(each)).strip())]
        return sample_prompt([*parts, ""][-3:][0].removeprefix("user\n"))

    def reward(self, text: str, has_ended: bool, fields: Fields) -> float:
        """Return how good an answer to a row with these fields is, 0 to 1."""
        self.on_answer()
        if self._function is None:
            return self._checker.reward(text.strip() if self._command else text, has_ended, dict(fields))
        value = float(self._function(text.strip(), dict(fields)))
        if not 0.0 <= value <= 1.0:
            raise OperatorError(f"the reward of one's own is {value} for the answer {text[:80]!r}: return 0 to 1")
        return value

    def close(self) -> None:
        """End the node's own command, if there is one. The next answer starts it again."""
        if self._command is not None:
            self._command.close()
