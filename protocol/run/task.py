"""What a run learns: the part of the manifest about data, prompts and the objective (SPEC 1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from protocol.run.reward import parse_reward
from protocol.schema import Bound, Malformed, Name, OptionalHex32, is_hex

DATA_PRIVATE = "private"


class TaskKind(StrEnum):
    """What follows a prompt: one of the run's label words, one of the row's own texts, a text to predict, or an answer.

    An answer is sampled from the model, and a rule says how good it is (`protocol.run.reward`).
    """

    CLASSIFICATION = "classification"
    CHOICE = "choice"
    COMPLETION = "completion"
    REWARD = "reward"


class Objective(StrEnum):
    """What training minimises: the mean loss, or one minus a metric of the predictions, which has no gradient."""

    LOSS = "loss"
    ACCURACY = "accuracy"
    F1 = "f1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """The task that a run learns.

    Attributes:
        template: prompt with field names of the data in braces, e.g. "{sentence} It was"; may be empty.
        completion: template of the text after the prompt, e.g. " {choice}" or "{text}"; empty for a classification,
            and the rule that rewards answers, as JSON, for a reward.
        label_words: words of label 0, 1, ..., with their leading space; for a classification only.
        data: "private" (each node its own), or a name of the public data, e.g. "file:train.jsonl".
        data_sha256: hash of the public data file; empty when private.
        max_tokens: longest prompt; longer ones lose their beginning.
        batch_rows: examples per step, of a reward answers, shared evenly by the directions (`Method.shares`).
    """

    kind: TaskKind
    template: Annotated[str, Bound(0, 4_096)]
    completion: Annotated[str, Bound(0, 4_096)]
    label_words: Annotated[tuple[Name, ...], Bound(0, 256)]
    objective: Objective
    data: Name
    data_sha256: OptionalHex32
    max_tokens: Annotated[int, Bound(4, 1 << 16)]
    batch_rows: Annotated[int, Bound(1, 1 << 16)]

    @property
    def draws_answers(self) -> bool:
        """Return whether messages are of answers that the model draws, and not of labels or texts that are given."""
        return self.kind is TaskKind.REWARD and parse_reward(self.completion).answer is None


def broken_task_rules(task: TaskSpec) -> Iterator[str]:
    """Check the rules between fields of a task (SPEC 1.4); yield a complaint for each that is broken."""
    is_classification = task.kind is TaskKind.CLASSIFICATION
    if (len(task.label_words) > 1) != is_classification or bool(task.label_words) != is_classification:
        yield "task.label_words: two or more for a classification, else none"
    if (task.completion == "") != is_classification:
        yield "task.completion: empty exactly for a classification"
    if task.kind is TaskKind.COMPLETION and task.objective is not Objective.LOSS:
        yield "task.objective: a completion has a loss only"
    if task.kind is TaskKind.REWARD:
        try:
            rule = parse_reward(task.completion)
            if rule.samples > task.batch_rows:
                yield f"task.batch_rows: {task.batch_rows} answers, fewer than the {rule.samples} samples to a prompt"
        except Malformed as error:
            yield f"task.completion: {error}"
    if (task.data == DATA_PRIVATE) != (task.data_sha256 == ""):
        yield "task.data_sha256: given exactly when data is public"
    if task.data_sha256 != "" and not is_hex(task.data_sha256, 64):
        yield "task.data_sha256: not lower-case hex"
