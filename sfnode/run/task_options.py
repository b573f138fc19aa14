"""An owner's choices for a new run's task and data, and the texts that follow from them. No click, no torch."""

from dataclasses import dataclass

from protocol.errors import OperatorError
from protocol.run import Objective, TaskKind
from sfnode.run.builtin_tasks import BUILTIN_TASKS, TaskTexts, kind_of
from sfnode.run.option_field import given, typed
from sfnode.run.reward_options import PROMPT, RewardOptions
from sfnode.storage import example_files


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Describes what a run learns: a built-in task, perhaps with other texts, or a task of the owner's own."""

    task: str | None = None
    template: str | None = given(
        None,
        'Make the prompt from this text, with fields of the data in braces, such as "{sentence} It was"; \\n is a line '
        "break.",
    )
    completion: str | None = given(
        None,
        'Put this after the prompt instead of a label word: " {choice}" for each choice of the row in turn, '
        '" {response}", or "{text}" for plain text.',
    )
    labels: str | None = given(
        None, 'Use these label words, separated by commas and with their spaces: " no, yes" gives " no" and " yes".'
    )
    objective: Objective = given(
        Objective.LOSS, "Lower this by training: the loss, or one minus the accuracy or the F1 score."
    )
    max_tokens: int | None = given(
        None,
        "Allow this many tokens in the longest example; a longer prompt loses its start.  [default: 128, or what "
        "the model can take]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Describes what a run trains on. ``data``: a file of rows, "hub:..." or "embedded:..."; None: the task's."""

    data: str | None = given(
        None,
        "Train on these public data: a file of rows (JSONL, a JSON list, CSV, TSV, Parquet), hub:OWNER/NAME or "
        "embedded:reviews. Their hash goes into the manifest.",
    )
    is_private: bool = given(
        False,
        "Let every node train on a file of its own, which never leaves its machine. The basis that --data makes still "
        "tells something about these data.",
        name="--private-data",
    )

    def named(self, task: TaskOptions) -> str | None:
        """Return ``data``, or the data that come with an embedded task."""
        if self.data is None and task.task is not None and task.task.startswith(example_files.EMBEDDED):
            return task.task
        return self.data


def reward_texts(options: TaskOptions, reward: RewardOptions) -> TaskTexts:
    """Return the texts of a task that learns from rewards. OperatorError: other options exclude it, or a wrong rule."""
    others = {"--task": options.task, "--completion": options.completion, "--labels": options.labels}
    if unfit := [name for name, value in others.items() if value is not None]:
        raise OperatorError(
            f"{unfit[0]}: with --reward nothing follows the prompt but the model's own answers: leave {unfit[0]} out, "
            'and give the prompt by --template, such as "Question: {question}\\nAnswer:"'
        )
    if options.objective is not Objective.LOSS:
        raise OperatorError(f"--objective {options.objective}: a run with --reward raises its reward: leave it out")
    template = PROMPT if options.template is None else typed(options.template)
    return TaskTexts(template=template, completion=reward.document, is_reward=True)


def task_texts(options: TaskOptions) -> TaskTexts:
    """Return the given texts, else those of the built-in task. OperatorError if they make no task."""
    known = BUILTIN_TASKS.get(options.task or "")
    if options.task and known is None:
        raise OperatorError(f"--task {options.task!r}: is none of {', '.join(sorted(BUILTIN_TASKS))}")
    completion = typed(options.completion) if options.completion is not None else known.completion if known else ""
    template = typed(options.template) if options.template is not None else known.template if known else None
    given = tuple(word.rstrip() for word in typed(options.labels).split(",")) if options.labels else None
    if kind_of(completion) is not TaskKind.CLASSIFICATION:
        if given is not None:
            raise OperatorError("--labels: a task with a --completion has no label words; leave one of them out")
        return TaskTexts(template=template or "", completion=completion, label_words=())
    words = given or (known.label_words if known else ())
    if template is None or not words:
        raise OperatorError(
            'say what to learn: --task sst2 (--task list shows all), or --template "{sentence} It was" '
            '--labels " no, yes", or --completion "{text}", or --reward "exact:{answer}"'
        )
    if len(words) < 2 or len({"", *words}) <= len(words):
        what = f"--labels {','.join(words)!r}: give two or more different words, none of them empty"
        raise OperatorError(f'{what}, with commas between them, such as " no, yes"')
    if {word.strip()[0] for word in words} <= {*"\"'["}:
        raise OperatorError(
            f"--labels {','.join(words)}: leave brackets and quotes out, which would belong to the words"
        )
    return TaskTexts(template=template, completion=completion, label_words=words)
