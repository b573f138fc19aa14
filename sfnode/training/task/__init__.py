"""Door: `read_task`. From rows of data to prompts, candidates, batches, scores and objectives."""

from sfnode.training.task import scoring as scoring
from sfnode.training.task.answer_judge import AnswerJudge as AnswerJudge
from sfnode.training.task.candidates import (
    CandidateBatch as CandidateBatch,
    batch_of as batch_of,
    chunks_of as chunks_of,
)
from sfnode.training.task.encoding import (
    Example as Example,
    PromptEncoder as PromptEncoder,
    RowBatch as RowBatch,
    Rows as Rows,
    TaskData as TaskData,
    read_task as read_task,
    row_batch as row_batch,
)
from sfnode.training.task.scoring import OutputHead as OutputHead, Scores as Scores
