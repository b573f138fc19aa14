"""Measurements with a worker beyond a node's own steps: states on held-out data, messages in several number formats."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from protocol.crypto import Signer, hashing
from protocol.errors import NumericError
from protocol.ledger import EnvelopeCodec
from protocol.run import DATA_PRIVATE, SignedManifest, TaskSpec
from protocol.state import Coefficients
from sfnode.quality_figures import Quality, SampleAnswer, sample_prompt
from sfnode.rows import TaskTemplate, row_files
from sfnode.storage import EvaluatedStep
from sfnode.worker.audit_case import Scalars
from sfnode.worker.supervisor import worker_socket
from sfnode.worker.worker_client import WorkerSession, coefficients_of, open_session
from sfnode.worker_protocol import TrainingConfig, messages


def evaluated_step(found: messages.Evaluated, step: int, quality: Quality, removed: str = "") -> EvaluatedStep:
    """Return what a node keeps of an evaluation of the model after all steps before ``step``."""
    return EvaluatedStep(
        step=step,
        accuracy=found.accuracy,
        loss=found.loss,
        rows=found.rows,
        reward=quality.reward(found.loss),
        answers=found.answers,
        spread=found.spread,
        removed=removed,
    )


async def evaluate_states(
    signed: SignedManifest,
    config: TrainingConfig,
    states: Sequence[Coefficients],
    on_progress: Callable[[int, int], None],
) -> list[messages.Evaluated]:
    """Evaluate each state on ``config.eval_data``; ``on_progress`` hears how many rows of all states are done.

    A worker keeps its last results (`Estimator.evaluate`). OperatorError, WorkerError.
    """
    found: list[messages.Evaluated] = []

    def report(done: int, rows: int) -> None:
        on_progress(len(found) * rows + done, len(states) * rows)

    async with worker_socket(config) as socket:
        for state in states:
            async with open_session(socket, signed, replace(config, data=None)) as session:
                await session.request(coefficients_of(state, state.epochs()), messages.CoefficientsSet)
                found.append(await session.request(messages.EvaluateRequest(), messages.Evaluated, report))
    return [_with_answers(each, signed.manifest.task, config.eval_data) for each in found]


def _with_answers(found: messages.Evaluated, task: TaskSpec, data: Path | None) -> messages.Evaluated:
    """Return an evaluation with the label words for the first rows as answers; of other tasks as it is."""
    if data is None or not (task.label_words and found.predictions):
        return found
    words, template = [word.strip() for word in task.label_words], TaskTemplate(task)
    rows = islice(row_files.rows_of(data, template), len(found.predictions))
    texts = [template.texts(row, where) for where, row in rows]
    answers = [
        SampleAnswer(
            prompt=sample_prompt(row.prompt),
            text=words[predicted],
            reward=float(predicted == row.label),
            right=words[row.label],
        )
        for row, predicted in zip(texts, found.predictions, strict=True)
    ]
    return replace(found, answers=tuple(answers))


async def evaluate_alone(
    signed: SignedManifest,
    config: TrainingConfig,
    seed: bytes,
    steps: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> messages.Evaluated:
    """Train a model on ``config.data`` alone, by the run's own rule, and evaluate it. OperatorError, WorkerError.

    ``seed``: of the key of the only author. ``steps``: None: all of the run.
    """
    manifest, signer, codec = signed.manifest, Signer(seed), EnvelopeCodec(signed.manifest)
    state, author = Coefficients(manifest), signer.author if manifest.task.data == DATA_PRIVATE else None
    async with worker_socket(config) as socket, open_session(socket, signed, config, author) as session:
        total = manifest.steps if steps is None else steps
        for step in range(0, total, manifest.method.local_steps):
            drawn = hashing.seed_of(manifest.run_id, signer.author, step)
            request = messages.EstimateRequest(step=step, seed=drawn, directions=manifest.method.directions)
            with suppress(NumericError):  # a node skips such a step
                estimated = await session.request(request, messages.Estimated)
                state.add([codec.seal(signer, step, estimated.scalars)])
                changed = [step // manifest.method.epoch_steps]  # the session keeps the others
                await session.request(coefficients_of(state, changed), messages.CoefficientsSet)
            on_progress(min(step + manifest.method.local_steps, total), total)
        found = await session.request(messages.EvaluateRequest(), messages.Evaluated)
    return _with_answers(found, manifest.task, config.eval_data)


class Measuring:
    """Measures messages on any state in any number format, with one session for each. ``aclose`` closes them all.

    ``formats``: those that were opened.
    """

    def __init__(self, socket: Path, signed: SignedManifest, config: TrainingConfig) -> None:
        """Take a worker's socket and a run; that of ``config`` is the format that is used first."""
        self.dtype = config.devices.precision(signed.manifest.model.weight_bytes)
        self._socket = socket
        self._signed = signed
        self._config = replace(config, eval_data=None)
        self._closing = AsyncExitStack()
        self.formats: list[str] = []
        self._sessions: dict[str, WorkerSession] = {}
        self._epochs: dict[str, frozenset[int]] = {}  # those that were sent to each session

    async def open(self, dtype: str) -> None:
        """Load the model in ``dtype``, unless that was done before.

        OperatorError: model, data, device or format cannot be used. WorkerError: no worker, or too little memory.
        """
        if dtype in self._sessions:
            return
        training = replace(self._config, devices=replace(self._config.devices, dtype=dtype))
        session = await self._closing.enter_async_context(open_session(self._socket, self._signed, training))
        self._sessions[dtype], self._epochs[dtype] = session, frozenset()
        self.formats.append(dtype)

    async def scalars(
        self, state: Coefficients, step: int, seeds: Sequence[int], directions: int, dtype: str
    ) -> list[Scalars | None]:
        """Measure each of ``seeds`` on ``state`` in the round at ``step``; None if the loss is not finite.

        ``directions``: how many of each local step's D are measured; the scalars of the others are 0. Of a dense core
        the rows to measure it on.
        """
        session, is_dense = self._sessions[dtype], self._signed.manifest.method.is_dense
        self._epochs[dtype] |= frozenset(state.revisions())
        await session.request(coefficients_of(state, sorted(self._epochs[dtype])), messages.CoefficientsSet)
        measured: list[Scalars | None] = []
        for seed in seeds:
            try:
                request = messages.EstimateRequest(step=step, seed=seed, directions=directions)
                reply = await session.request(request, messages.Estimated)
                measured.append(reply.scalars[is_dense:])  # a dense message begins with its rows
            except NumericError:
                measured.append(None)
        return measured

    async def aclose(self) -> None:
        """Close all sessions."""
        await self._closing.aclose()
