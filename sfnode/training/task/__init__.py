"""Door: `read_task`. From rows of data to prompts, candidates, batches, scores and objectives."""

from sfnode.training.task import scoring
from sfnode.training.task.answer_judge import AnswerJudge
from sfnode.training.task.candidates import CandidateBatch, batch_of, chunks_of
from sfnode.training.task.encoding import Example, PromptEncoder, RowBatch, Rows, TaskData, read_task, row_batch
from sfnode.training.task.scoring import OutputHead, Scores
