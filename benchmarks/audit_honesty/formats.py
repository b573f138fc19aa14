"""The embedded model in every number format in which an honest author may compute, and runs of it."""

from __future__ import annotations

from hashlib import sha256

from protocol.crypto import Signer
from protocol.run import FORMAT, Manifest, Objective, ScalarKind, TaskKind, TaskSpec
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.demo import DATA_NAME, LABEL_WORDS, MODEL_NAME, TEMPLATE, data_file
from sfnode.model_files import resolve_model
from sfnode.run import MethodOptions, builder
from sfnode.training.devices import choose_device
from sfnode.training.estimator import Estimator
from sfnode.training.model import load_described, loading, quantised, trainable_tensors
from sfnode.training.shared_model import load_shared
from sfnode.training.task import read_task

FORMATS = ("fp32", "bf16", "int8", "fp16", "int4")
MODEL = f"embedded:{MODEL_NAME}"
_ROWS = 16
# Of one run after the other: how far a step goes, how many scalars a message has, and of which kind.
_LEARNING_RATES = (3e-4, 1e-3, 3e-3)
_DIRECTIONS = (8, 16, 4)
_SCALARS = (ScalarKind.RAW, ScalarKind.RAW, ScalarKind.NORMALISED, ScalarKind.RAW)


class Models:
    """The embedded model in all formats; sessions on it for one run after the other."""

    def __init__(self) -> None:
        folder = resolve_model(MODEL)
        self._description = load_described(folder)[1]
        self._tokenizer = loading.load_tokenizer(folder.path)
        device = choose_device("cpu")
        self._shared = {name: load_shared(quantised.choose_precision(name), folder.path, device) for name in FORMATS}

    def manifest(self, number: int, owner: Signer, steps: int) -> Manifest:
        """Run ``number`` of a series that goes through step lengths, directions and kinds of scalars."""
        options = MethodOptions(
            directions=_DIRECTIONS[number // 3 % len(_DIRECTIONS)],
            learning_rate=_LEARNING_RATES[number % len(_LEARNING_RATES)],
            scalar=_SCALARS[number % len(_SCALARS)],
            epoch_steps=32,
        )
        method, schedule = builder.method_of(options)
        return builder.build_manifest(
            Manifest(
                format=FORMAT,
                name=f"audits {number}",
                owner=owner.author.hex(),
                model=self._description,
                tensors=trainable_tensors(self._shared["fp32"].model),
                task=_task(),
                method=method,
                schedule=schedule,
                steps=steps,
                staleness=builder.STALENESS,
                admission=builder.OPEN,
                authors_max=builder.AUTHORS_MAX,
            )
        )

    def sessions(self, manifest: Manifest) -> dict[str, StateEstimator]:
        """A session in each format."""
        data = read_task(self._tokenizer, manifest.task, data_file(split="train"), None)
        bases = Bases(manifest)
        return {name: StateEstimator(shared, bases, data) for name, shared in self._shared.items()}


class StateEstimator(Estimator):
    """An estimator that is told its whole state each time."""

    def scalars(self, state: Coefficients, seed: int, step: int) -> tuple[int, ...]:
        """The message of the round at ``step``, as measured on ``state``."""
        for epoch in {*state.revisions(), *self.told}:
            self.set_coefficients(epoch, state.flat(epoch))
        self.told = frozenset({*self.told, *state.revisions()})
        return self.estimate(seed, step).scalars

    told: frozenset[int] = frozenset()


def _task() -> TaskSpec:
    return TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        completion="",
        objective=Objective.LOSS,
        template=TEMPLATE,
        label_words=LABEL_WORDS,
        data=f"embedded:{DATA_NAME}",
        data_sha256=sha256(data_file(split="train").read_bytes()).hexdigest(),
        max_tokens=64,
        batch_rows=_ROWS,
    )
