"""Describe a new run's model for its manifest: files with hashes, trainable tensors. Check that the task fits it."""

from dataclasses import dataclass

from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run import ModelSpec, Sharing, TaskSpec, TensorSpec
from sfnode.model_files import ModelFolder, model_folder as files, verify
from sfnode.storage import example_files
from sfnode.training.model import TensorGroup, check_whole_fits, left_out, load_described, loading, trainable_tensors
from sfnode.training.task import AnswerJudge, PromptEncoder, TaskData, read_task
from sfnode.training.token_check import shown_words

_MAX_TOKENS = 128  # enough for a sentence with its prompt; every token of the longest row costs a forward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunModel:
    """Describes a new run's model.

    Attributes:
        tensors: the trained tensors. left_out: tensors that no choice of groups could train, with the reason.
        model: the loaded model, in fp32 on the CPU.
        data: the run's public data, encoded; without examples where they are private.
        words: the task's label words in words; empty without any.
    """

    spec: ModelSpec
    tensors: tuple[TensorSpec, ...]
    left_out: dict[str, str]
    model: PreTrainedModel
    data: TaskData
    words: str


def describe_run(
    folder: ModelFolder, trainable: str, task: TaskSpec, data: str | None, sharing: Sharing = Sharing.PEERS
) -> RunModel:
    """Load the model, hash its files, list its trainable tensors, and read the data with the task's templates.

    ``trainable``: groups of tensors, comma-separated. ``data``: public training data, None when it is private.
    OperatorError: a file is missing or malformed, two label words are the same tokens, or a group is unknown.
    """
    groups = chosen_groups(trainable)
    loading.check_positions(folder.path, task.max_tokens)
    verify.found_tokenizer(folder.path)
    located = None if data is None else example_files.locate(data)
    stops = loading.named_stops(folder.path, files.files_beside(folder.path))
    tokenizer, token_rows = loading.load_tokenizer(folder.path), loading.token_rows(loading.empty_model(folder.path))
    read = read_task(tokenizer, task, located, None, AnswerJudge.of(tokenizer, task, stops=stops), token_rows)
    check_whole_fits(folder.path)
    model, spec = load_described(folder, sharing)
    return RunModel(
        spec=spec,
        tensors=trainable_tensors(model, groups),
        left_out=left_out(model),
        model=model,
        data=read,
        words=shown_words(PromptEncoder(tokenizer, task, token_rows), task),
    )


def default_max_tokens(folder: ModelFolder) -> int:
    """Return 128, or the number of positions of the model if that is less."""
    return min(_MAX_TOKENS, loading.positions_of(folder.path) or _MAX_TOKENS)


def chosen_groups(text: str) -> tuple[TensorGroup, ...]:
    """Parse comma-separated names of tensor groups, as --trainable takes them; OperatorError for an unknown one."""
    known = [group.value for group in TensorGroup]
    wanted = [name.strip() for name in text.split(",")]
    if unknown := [name for name in wanted if name not in known]:
        raise OperatorError(f"--trainable {unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(TensorGroup(name) for name in wanted)
