"""Say how good a run's models are: by loss and accuracy or, where a run learns from rewards, by what answers get.

The figures are kept as a loss and an accuracy everywhere. Of rewards, the loss is one minus the mean reward, and the
accuracy is the share of answers with the whole reward.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.run import TaskKind, TaskSpec

SAMPLE_CHARACTERS = 80  # of a prompt, the first ones of an answer
_END_CHARACTERS = 37
_OFTEN = 0.1  # an answer that one prompt in ten gets


def sample_prompt(text: str) -> str:
    """Return a prompt in a line, without its middle if it is long: what rows differ in may stand at either end."""
    line = " ".join(text.split())
    if len(line) <= SAMPLE_CHARACTERS:
        return line
    return f"{line[: SAMPLE_CHARACTERS - _END_CHARACTERS - 5]} ... {line[-_END_CHARACTERS:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAnswer:
    """Holds the model's likeliest answer to a held-out prompt, both cut to a line, and its reward.

    ``right``: the right answer, where that is a label word; the reward is then 1 or 0.
    """

    prompt: str
    text: str
    reward: float
    right: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSpread:
    """Says how unlike a model's answers to different prompts are.

    Attributes:
        distinct: number of different answers.
        commonest: the most frequent one, cut to a line, empty where it is not shown; share: of the prompts that get it.
    """

    distinct: int
    commonest: str
    share: float

    @staticmethod
    def of(texts: Sequence[str]) -> "AnswerSpread":
        """Count answers, one to each prompt; there is at least one."""
        ((commonest, count), *_), distinct = Counter(texts).most_common(1), len(set(texts))
        return AnswerSpread(distinct=distinct, commonest=commonest[:SAMPLE_CHARACTERS], share=count / len(texts))

    def in_words(self) -> str:
        """Return the number of different answers, and the most frequent one where many prompts get it."""
        said = f"{self.distinct:,} different answer{'s' * (self.distinct != 1)}"
        answer = f'"{self.commonest}"' if self.commonest else "one answer"
        return f"{said}, {answer} to {100 * self.share:.1f} % of the prompts" if self.share >= _OFTEN else said


@dataclass(frozen=True, slots=True)
class Quality:
    """Names and prints the figures of a run's models.

    Attributes:
        is_reward: the run learns from rewards.
        names_answers: its rows name right answers: in training, the loss is one minus the chance of a token of these.
    """

    is_reward: bool
    names_answers: bool = False

    @staticmethod
    def of(task: TaskSpec) -> "Quality":
        """Return how the models of a run with this task are described."""
        is_reward = task.kind is TaskKind.REWARD
        return Quality(is_reward, is_reward and not task.draws_answers)

    @property
    def name(self) -> str:
        """Return what the first figure is called."""
        return "mean reward" if self.is_reward else "loss"

    @property
    def short_name(self) -> str:
        """Return that in one word, for the head of a column."""
        return "reward" if self.is_reward else "loss"

    @property
    def training_name(self) -> str:
        """Return what the first figure is called where it is of rows that a node learns from."""
        return "chance of a right token" if self.names_answers else self.name

    @property
    def training_short(self) -> str:
        """Return that in one word."""
        return "chance" if self.names_answers else self.short_name

    @property
    def share_name(self) -> str:
        """Return what the second figure is called."""
        return "fully right" if self.is_reward else "accuracy"

    def value(self, loss: float) -> float:
        """Return the first figure: the loss itself, or the mean reward, which rises."""
        return 1.0 - loss if self.is_reward else loss

    def reward(self, loss: float | None) -> float | None:
        """Return the mean reward; None where there is none."""
        return 1.0 - loss if self.is_reward and loss is not None else None

    def of_training(self, loss: float | None) -> tuple[float | None, float | None]:
        """Return the mean reward of drawn answers, and the chance of a token of right ones; None: there is none."""
        return (None, self.reward(loss)) if self.names_answers else (self.reward(loss), None)

    def figure(self, loss: float, digits: int = 4) -> str:
        """Return the first figure as text; ``digits``: of a loss. A mean reward has two."""
        return f"{self.value(loss):.{2 if self.is_reward else digits}f}"

    def share(self, accuracy: float, digits: int = 1) -> str:
        """Return the second figure with its name: "accuracy 74.0 %" or "74.0 % fully right"."""
        text = f"{100 * accuracy:.{digits}f} %"
        return f"{text} {self.share_name}" if self.is_reward else f"{self.share_name} {text}"
