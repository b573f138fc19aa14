"""A model in every number format in which an honest author may compute, and runs of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from protocol.crypto import Signer
from protocol.run import (
    FORMAT,
    OPEN_TO_ALL,
    Manifest,
    Method,
    Objective,
    ScalarKind,
    Schedule,
    ScheduleKind,
    TaskKind,
    TaskSpec,
    TensorSpec,
)
from protocol.state import Coefficients
from protocol.subspace import basis_file
from sfnode.demo import LABEL_WORDS, MODEL_NAME, TEMPLATE, data_file
from sfnode.model_files import resolve_model
from sfnode.run import BUILTIN_TASKS, MethodOptions, manifest_builder
from sfnode.storage import stored_basis
from sfnode.training.calibration import calibrate
from sfnode.training.devices import choose_device
from sfnode.training.estimator import Estimator
from sfnode.training.model import load_described, loading, trainable_tensors
from sfnode.training.shared_model import load_shared
from sfnode.training.task import read_task

FORMATS = ("fp32", "bf16", "int8", "fp16", "int4")
_ROWS = 16
MODEL = f"embedded:{MODEL_NAME}"
DATA = data_file(split="train")
TASKS = [name for name, texts in BUILTIN_TASKS.items() if texts.label_words]
# Of one run after the other: how far a step goes, how many scalars a message has, and of which kind.
_LEARNING_RATES = (3e-4, 1e-3, 3e-3)
_DIRECTIONS = (8, 16, 4)
_SCALARS = (ScalarKind.RAW, ScalarKind.RAW, ScalarKind.NORMALISED, ScalarKind.RAW)
# Of dense runs, in rates of the basis; their messages have as many rows as others have directions.
_DENSE_RATES = (1.0, 1 / 2, 3 / 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the runs learn: a model, and the training data of a task.

    Attributes:
        task: built-in; None: the embedded one.
        is_dense: whether messages hold a dense core, in place of scalars along drawn directions.
        bits: of the numbers of dense messages.
    """

    model: str = MODEL
    data: Path = DATA
    task: str | None = None
    is_dense: bool = False
    bits: int = manifest_builder.BITS


class Models:
    """The subject's model in all formats; sessions on it for one run after the other.

    ``folder``: for the files of bases.
    """

    def __init__(self, subject: Subject, folder: Path) -> None:
        self._subject, self._folder = subject, folder
        model_folder = resolve_model(subject.model)
        self._description = load_described(model_folder)[1]
        self._tokenizer = loading.load_tokenizer(model_folder.path)
        device = choose_device("cpu")
        self._shared = {name: load_shared(name, model_folder.path, device) for name in FORMATS}
        self._tensors = trainable_tensors(self._shared["fp32"].model)
        self._task = _task(subject)
        self._data = read_task(self._tokenizer, self._task, subject.data, None)

    def manifest(self, number: int, owner: Signer, steps: int) -> Manifest:
        """Run ``number`` of a series that goes through step lengths, directions and kinds of scalars."""
        options = MethodOptions(
            directions=_DIRECTIONS[number // 3 % len(_DIRECTIONS)],
            learning_rate=_LEARNING_RATES[number % len(_LEARNING_RATES)],
            scalar=_SCALARS[number % len(_SCALARS)],
            epoch_steps=32,
        )
        tensors, task, (method, schedule) = self._tensors, self._task, manifest_builder.method_of(options)
        if self._subject.is_dense:
            task = replace(task, batch_rows=options.directions)
            tensors, (method, schedule) = self._dense(options.directions, _DENSE_RATES[number % len(_DENSE_RATES)])
        return manifest_builder.build_manifest(
            Manifest(
                format=FORMAT,
                name=f"audits {number}",
                owner=owner.author.hex(),
                model=self._description,
                tensors=tensors,
                task=task,
                method=method,
                schedule=schedule,
                steps=steps,
                staleness=manifest_builder.STALENESS,
                admission=OPEN_TO_ALL,
                authors_max=manifest_builder.AUTHORS_MAX,
            )
        )

    def _dense(self, rows: int, rate: float) -> tuple[tuple[TensorSpec, ...], tuple[Method, Schedule]]:
        """Tensors, method and schedule of a dense run at ``rate``; its basis goes to a file."""
        found = calibrate(self._shared["fp32"], self._tensors, self._data, rows, self._subject.bits)
        assert found is not None, "the subjects' layers that write are known"
        data = basis_file.encode_basis(found.content)
        digest = sha256(data).hexdigest()
        (self._folder / digest).write_bytes(data)
        return found.tensors, manifest_builder.dense_method_of(
            ScheduleKind.LINEAR, rate * found.learning_rate, digest, found.settings, rows
        )

    def basis(self, manifest: Manifest) -> Path | None:
        """The file of a dense run's basis."""
        return self._folder / manifest.method.basis_sha256 if manifest.method.is_dense else None

    def sessions(self, manifest: Manifest) -> dict[str, StateEstimator]:
        """A session in each format."""
        bases = stored_basis.read_bases(manifest, self.basis(manifest))
        return {name: StateEstimator(shared, bases, self._data) for name, shared in self._shared.items()}


class StateEstimator(Estimator):
    """An estimator that is told its whole state each time."""

    def scalars(self, state: Coefficients, seed: int, step: int) -> tuple[int, ...]:
        """The message of the round at ``step``, as measured on ``state``."""
        for epoch in {*state.revisions(), *self.told}:
            self.set_coefficients(epoch, state.core(epoch))
        self.told = frozenset({*self.told, *state.revisions()})
        return self.estimate(seed, step).scalars

    told: frozenset[int] = frozenset()


def _task(subject: Subject) -> TaskSpec:
    texts = None if subject.task is None else BUILTIN_TASKS[subject.task]
    return TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        completion="",
        objective=Objective.LOSS,
        template=TEMPLATE if texts is None else texts.template,
        label_words=LABEL_WORDS if texts is None else texts.label_words,
        data=subject.data.name,
        data_sha256=sha256(subject.data.read_bytes()).hexdigest(),
        max_tokens=64,
        batch_rows=_ROWS,
    )
