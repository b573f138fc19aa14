"""An owner's choices for a new run's task and data, and the texts that follow from them. No click, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protocol.errors import OperatorError
from protocol.run import Objective, TaskKind
from sfnode.run.builtin_tasks import BUILTIN_TASKS, kind_of
from sfnode.storage import data_files

_ENDS_IN_WORD: Final = re.compile(r"[\w}.,:;?! ]\Z")  # a word, field, punctuation or space; no line break, no quote


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Describes what a run learns: a built-in task, perhaps with other texts, or a task of the owner's own.

    Attributes:
        task: name of a built-in task.
        labels: label words, separated by commas.
        max_tokens: length of the longest row; None: a length that suits the model.
    """

    task: str | None = None
    template: str | None = None
    completion: str | None = None
    labels: str | None = None
    objective: Objective = Objective.LOSS
    max_tokens: int | None = None

    @property
    def says_what(self) -> bool:
        """Return whether any option names a task."""
        return not (self.task is None and self.template is None and self.completion is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Describes what a run trains on.

    Attributes:
        data: a JSONL file or "embedded:NAME"; None: that of an embedded task.
        is_private: every node has its own data.
    """

    data: str | None = None
    is_private: bool = False

    def named(self, task: TaskOptions) -> str | None:
        """Return ``data``, or the data that come with an embedded task."""
        if self.data is None and task.task is not None and task.task.startswith(data_files.EMBEDDED):
            return task.task
        return self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTexts:
    """Holds the prompt, the text that follows it, and the label words, as in a run's manifest."""

    template: str
    completion: str
    label_words: tuple[str, ...]

    @property
    def kind(self) -> TaskKind:
        """Return the kind of task that the completion implies."""
        return kind_of(self.completion)

    @property
    def label_warning(self) -> str:
        """Return a warning if label words run into the prompt, with the words to use instead; else empty.

        Tokenizers have words with the space before them; "It was" and "no" would make "It wasno".
        """
        bare = [word for word in self.label_words if word[:1].isascii() and word[:1].isalnum()]
        if not bare or not _ENDS_IN_WORD.search(self.template):
            return ""
        wanted = ",".join(f" {word}" if word in bare else word for word in self.label_words)
        end = ", and no space at the end of the template" if self.template.endswith(" ") else ""
        place = f"right after {self.template[-20:]!r}"
        return f'no text has the label word {bare[0]!r} {place}. Write --labels "{wanted}"{end}'


def task_texts(options: TaskOptions) -> TaskTexts:
    """Return the given texts, else those of the built-in task. OperatorError if they make no task."""
    known = BUILTIN_TASKS.get(options.task or "")
    completion = options.completion if options.completion is not None else known.completion if known else ""
    template = options.template if options.template is not None else known.template if known else None
    given = tuple(options.labels.split(",")) if options.labels else None
    if kind_of(completion) is not TaskKind.CLASSIFICATION:
        if given is not None:
            raise OperatorError("--labels: a task with a --completion has no label words; leave one of them out")
        return TaskTexts(template=template or "", completion=completion, label_words=())
    words = given or (known.label_words if known else ())
    if template is None or not words:
        raise OperatorError(
            'say what to learn: --task sst2 (--task list shows all), or --template "{sentence} It was" '
            '--labels " no, yes", or --completion "{text}"'
        )
    if len(words) < 2 or len(set(words)) < len(words):
        raise OperatorError(f'--labels {",".join(words)!r}: give two or more different words, such as " no, yes"')
    return TaskTexts(template=template, completion=completion, label_words=words)
