"""Door: `read_task`. From rows of data to prompts, candidates, batches, scores and objectives."""

from sfnode.training.task.candidates import CandidateBatch, batch_of, chunks_of
from sfnode.training.task.encoding import (
    Example,
    PromptEncoder,
    RowBatch,
    TaskData,
    read_task,
    row_batch,
)
from sfnode.training.task.scoring import (
    OutputHead,
    Scores,
    group_objectives,
    macro_f1,
    score_candidates,
    score_words,
    word_logits,
)
from sfnode.training.task.templates import TaskTemplate, field_names

__all__ = [
    "CandidateBatch",
    "Example",
    "OutputHead",
    "PromptEncoder",
    "RowBatch",
    "Scores",
    "TaskData",
    "TaskTemplate",
    "batch_of",
    "chunks_of",
    "field_names",
    "group_objectives",
    "macro_f1",
    "read_task",
    "row_batch",
    "score_candidates",
    "score_words",
    "word_logits",
]
