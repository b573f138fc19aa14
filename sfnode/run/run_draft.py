"""A new run before it is signed: an owner's options, and the manifest that follows from them. No click, no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from protocol.crypto import Signer
from protocol.limits import DIRECTIONS_MAX
from protocol.run import (
    FORMAT,
    AdmissionSpec,
    CoreKind,
    Manifest,
    ModelSpec,
    Objective,
    Sharing,
    SignedManifest,
    TaskSpec,
    TensorSpec,
    sign_manifest,
)
from protocol.subspace import Bases
from sfnode.run.builder import (
    AUTHORS_MAX,
    OPEN,
    STALENESS,
    MethodOptions,
    build_manifest,
    dense_method_of,
    method_of,
    read_toml,
    renewable,
)
from sfnode.run.task_options import DataOptions, TaskOptions
from sfnode.storage import BasisSpec, DenseSettings, stored_bases

_LOWER: Final = 1 / 2  # the share of the suggested rate to try where that rate hurts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Holds an owner's options for a new run.

    Attributes:
        name: for people; None: the name of the run file.
        model: hub id, folder, GGUF file, "pypi:PACKAGE" or "embedded:NAME".
        revision: hub commit or version of the package; None: the newest.
        sharing: whether nodes give the model's files to each other.
        trainable: groups of tensors, separated by commas.
        basis: file of a published basis; None: one may be made, else the bases are random.
        is_plain: never make a basis.
        settings: TOML file with fields of the manifest, which override all other options.
    """

    name: str | None = None
    model: str
    revision: str | None = None
    sharing: Sharing = Sharing.PEERS
    trainable: str
    task: TaskOptions
    data: DataOptions
    batch_rows: int
    method: MethodOptions
    steps: int
    staleness: int = STALENESS
    admission: AdmissionSpec = OPEN
    basis: Path | None = None
    is_plain: bool = False
    settings: Path | None = None

    @property
    def wants_basis(self) -> bool:
        """Return whether there are data to make a basis from and no option of the owner rules one out."""
        method = self.drawn_method
        chosen = (self.basis, method.rank, method.core, method.scalar, self.settings)
        return self.data.named(self.task) is not None and not self.is_plain and all(each is None for each in chosen)

    @property
    def drawn_method(self) -> MethodOptions:
        """Return the options of a run that draws directions, which a dense run has to begin with."""
        return replace(self.method, core=None) if self.method.core is CoreKind.DENSE else self.method

    @property
    def dense_batch_rows(self) -> int:
        """Return the rows of a dense message; 0 where an option says how directions are drawn, or what is minimised."""
        rest = replace(self.drawn_method, learning_rate=None, schedule=MethodOptions().schedule)
        is_free = rest == MethodOptions() and self.task.objective is Objective.LOSS
        return self.batch_rows if is_free and self.batch_rows <= DIRECTIONS_MAX else 0


class RunDraft:
    """Builds the manifest of a new run: first from options, task and model, then also from what a calibration finds.

    ``options`` have a name. ``basis`` is the file of the published basis; None: random bases. OperatorError: the
    settings cannot be read.
    """

    def __init__(
        self, options: RunOptions, signer: Signer, task: TaskSpec, model: ModelSpec, tensors: tuple[TensorSpec, ...]
    ) -> None:
        self.basis = options.basis
        self._options = options
        self._signer = signer
        self._task = task
        self._model = model
        self._tensors = tensors
        self._method = options.drawn_method
        self._dense: DenseSettings | None = None
        self._settings = None if options.settings is None else read_toml(options.settings)

    def take_basis(self, basis: Path, learning_rate: float | None, epsilon_exp: int | None) -> None:
        """Use a basis that was made for this run, and what it suggests where the owner has given nothing."""
        given = self._method
        self.basis = basis
        self._method = replace(
            given,
            learning_rate=learning_rate if given.learning_rate is None else given.learning_rate,
            epsilon_exp=epsilon_exp if given.epsilon_exp is None else given.epsilon_exp,
        )

    def take_dense(self, dense: DenseSettings, tensors: tuple[TensorSpec, ...]) -> None:
        """Let messages hold a dense core of these tensors; the basis is one for it."""
        self._dense, self._tensors = dense, tensors

    def rates_to_try(self) -> tuple[float, ...]:
        """Return the learning rate, and half of it in case that it hurts, unless the owner has given one."""
        rate = self._method.learning_rate
        assert rate is not None, "the sources that a new run's basis comes from suggest one"
        return (rate,) if self._options.method.learning_rate is not None else (rate, rate * _LOWER)

    def take_rate(self, learning_rate: float) -> None:
        """Use this learning rate."""
        self._method = replace(self._method, learning_rate=learning_rate)

    def manifest(self, learning_rate: float | None = None) -> Manifest:
        """Return the manifest as it is now, or with another learning rate. OperatorError names the field at fault."""
        options = self._options
        chosen = self._method if learning_rate is None else replace(self._method, learning_rate=learning_rate)
        basis = None if self.basis is None else BasisSpec.read(self.basis)
        if basis is not None and self._dense is not None:
            method, schedule = dense_method_of(chosen, basis, self._dense, options.batch_rows)
        else:
            method, schedule = method_of(chosen if basis is None else renewable(chosen, options.steps), basis)
        manifest = Manifest(
            format=FORMAT,
            name=options.name or "",
            owner=self._signer.author.hex(),
            model=self._model,
            tensors=self._tensors,
            task=self._task,
            method=method,
            schedule=schedule,
            steps=options.steps,
            staleness=options.staleness,
            admission=options.admission,
            authors_max=AUTHORS_MAX,
        )
        return build_manifest(manifest, self._settings)

    def bases_at(self, learning_rate: float) -> Bases:
        """Return the bases of the run as it would be with this learning rate."""
        return stored_bases.read_bases(self.manifest(learning_rate), self.basis)

    def signed(self) -> SignedManifest:
        """Sign the manifest. OperatorError: a field is wrong, or the basis is not made for these tensors."""
        manifest = self.manifest()
        if self.basis is not None:
            stored_bases.read_bases(manifest, self.basis)
        return sign_manifest(manifest, self._signer)
