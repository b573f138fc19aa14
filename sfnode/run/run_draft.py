"""A new run before it is signed: an owner's options, and the manifest that follows from them. No click, no torch.

Whether its messages hold a dense core is decided in three steps; each run draws its directions until the last one:

    `wants_basis`         no option is for drawn directions, and there are data to make a basis from
    `dense_batch_rows`    is not 0: a dense message can hold the rows of a step, too, so a basis is looked for
    `take_dense`          one was found
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.limits import DIRECTIONS_MAX
from protocol.run import (
    FORMAT,
    OPEN_TO_ALL,
    AdmissionSpec,
    CoreKind,
    Manifest,
    ModelSpec,
    Objective,
    Sharing,
    SignedManifest,
    TaskKind,
    TaskSpec,
    TensorSpec,
    sign_manifest,
)
from protocol.subspace import BasisContent, basis_file
from sfnode.run import manifest_builder
from sfnode.run.builtin_tasks import TaskTexts
from sfnode.run.manifest_builder import AUTHORS_MAX, STALENESS, MethodOptions
from sfnode.run.option_field import given
from sfnode.run.reward_options import NO_REWARD, RewardOptions
from sfnode.run.task_options import DataOptions, TaskOptions, reward_texts, task_texts
from sfnode.storage import DenseSettings

_ROWS = 16
_STEPS = 500
_LABELS_END = 1 / 3  # of the rate is left at the end: docs/decisions/0032-all-numbers-from-one-pass.md


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Holds an owner's options for a new run.

    Attributes:
        model: hub id, folder, GGUF file, "pypi:PACKAGE" or "embedded:NAME".
        revision: hub commit or version of the package; None: the newest.
    """

    name: str | None = given(None, "Give the run this name, for people to read.  [default: OUT without its ending]")
    model: str
    revision: str | None = None
    sharing: Sharing = given(
        Sharing.PEERS,
        "Let nodes get the model's files from `peers` that have them, or from `none`, where its licence forbids that.",
    )
    task: TaskOptions
    reward: RewardOptions = NO_REWARD
    batch_rows: int | None = given(
        None,
        "Take this many examples per node and step, with --reward answers. More make a step slower and its result less "
        f"noisy.  [default: {_ROWS}, or the answers to one prompt if these are more]",
    )
    trainable: str = given(
        "linear", "Train these groups of tensors, separated by commas: linear, embedding, norm, bias."
    )
    method: MethodOptions
    data: DataOptions
    steps: int | None = given(
        None, f"Let each node make this many steps.  [default: {_STEPS}, and {NO_REWARD.usual_steps} with --reward]"
    )
    staleness: int = given(
        STALENESS,
        "Let a node begin a step while updates of this many rounds are still on their way to it; 0: none.",
        bounds=(0, None),
    )
    is_plain: bool = given(
        False,
        "Measure slopes along random directions, as SeedFlood does; so does a run with an option on directions, and "
        "one without --data. Else nodes send the gradient by a small core, whose basis is written to OUT.basis.",
        name="--plain",
    )
    admission: AdmissionSpec = OPEN_TO_ALL
    settings: Path | None = given(
        None, "Read fields of the manifest from this TOML file; they replace or complete all other options."
    )

    @property
    def texts(self) -> TaskTexts:
        """Return prompt, completion and label words of the task. OperatorError: they make none."""
        return task_texts(self.task) if self.reward.rule_text is None else reward_texts(self.task, self.reward)

    @property
    def rows(self) -> int:
        """Return the rows of a step at most. OperatorError: they do not fit the rule of rewards, or that is wrong."""
        if self.reward.rule_text is not None:
            return self.reward.batch_rows(self.batch_rows)
        if unfit := [name for name, value in self.reward.others.items() if value is not None]:
            raise OperatorError(f"{unfit[0]}: is for runs with --reward, such as exact:{{answer}}: add that")
        rows, number = _ROWS if self.batch_rows is None else self.batch_rows, self.method.directions
        if rows > DIRECTIONS_MAX and self.wants_basis and (self.method.core is CoreKind.DENSE or rows % number):
            raise OperatorError(
                f"--batch-rows {rows}: a dense core takes at most {DIRECTIONS_MAX} rows: give as many or fewer. "
                f"More are for random directions (--plain), and a multiple of {number}"
            )
        return rows

    @property
    def dense_batch_rows(self) -> int:
        """Return the rows of a dense message; 0 where no basis is looked for."""
        return self.rows if self.wants_basis and self.rows <= DIRECTIONS_MAX else 0

    @property
    def wants_basis(self) -> bool:
        """Return whether no option is for runs that draw directions, and there are data to make a basis from."""
        usual = MethodOptions()
        drawn = replace(self.method, core=None, learning_rate=None, schedule=usual.schedule, bits=None)
        is_free = drawn == usual and self.settings is None and not self.is_plain
        has_data = self.data.named(self.task) is not None and self.task.objective is Objective.LOSS
        return is_free and has_data and self.method.core in (None, CoreKind.DENSE)

    @property
    def drawn_method(self) -> MethodOptions:
        """Return the options of a run that draws directions. A rate for a dense core means another step along them."""
        core = None if self.method.core is CoreKind.DENSE else self.method.core
        return replace(self.method, core=core, learning_rate=None if self.wants_basis else self.method.learning_rate)

    def checked_settings(self) -> dict[str, object]:
        """Return the fields in the file of settings. OperatorError: it cannot be read, or wrong rate or bits."""
        if (bits := self.method.bits) not in (None, 2, 4, 8):  # as only a program can give
            raise OperatorError(f"--bits {bits}: give 2, 4 or 8")
        if (rate := self.method.learning_rate) is not None:
            most = manifest_builder.DENSE_RATE_MAX if self.wants_basis else manifest_builder.RATE_MAX
            manifest_builder.checked_rate(rate, most)
        return {} if self.settings is None else manifest_builder.read_toml(self.settings)


class RunDraft:
    """Builds the manifest of a new run: first from options, task and model, then also from a basis that was found.

    Messages hold slopes along drawn directions, unless there comes a basis. ``options`` have a name; ``tensors`` are
    those that are trained. OperatorError: an impossible learning rate, or the settings cannot be read.
    """

    def __init__(
        self, options: RunOptions, signer: Signer, task: TaskSpec, model: ModelSpec, tensors: tuple[TensorSpec, ...]
    ) -> None:
        self.options = options
        self._signer = signer
        self.task = task
        self._model = model
        self.tensors = tensors
        self._settings = options.checked_settings()
        self._method, self._schedule = manifest_builder.method_of(options.drawn_method)

    def take_dense(
        self, tensors: tuple[TensorSpec, ...], dense: DenseSettings, learning_rate: float, content: BasisContent
    ) -> bytes:
        """Let messages hold a dense core of these tensors; return the file of the basis with this content.

        ``learning_rate``: where the owner has given none.
        """
        given = self.options.method
        is_found = manifest_builder.RATE_MIN <= learning_rate <= manifest_builder.DENSE_RATE_MAX
        if given.learning_rate is None and not is_found:
            raise OperatorError(
                f"no learning rate was found by which the examples teach anything (the last was {learning_rate:.2g}): "
                "they may all be alike, or the model knows them. Give more and different ones, or --learning-rate "
                "0.001, or --plain"
            )
        rate = learning_rate if given.learning_rate is None else given.learning_rate
        rows, file = self.options.rows, basis_file.encode_basis(content)
        digest = sha256(file).hexdigest()
        end = _LABELS_END if self.task.label_words else 0.0
        self._method, self._schedule = manifest_builder.dense_method_of(given.schedule, rate, digest, dense, rows, end)
        self.tensors = tensors
        return file

    def manifest(self, *, is_complete: bool = True) -> Manifest:
        """Return the manifest as it is now. OperatorError names the field at fault.

        ``is_complete``: False: a basis may still come, without which rewards make no run. What else is wrong with them
        shows as a completion's. Nor need the rows be a multiple of the directions then.
        """
        task, options, method = self.task, self.options, self._method
        if not is_complete and task.kind is TaskKind.REWARD:
            task = replace(task, kind=TaskKind.COMPLETION)
        if not is_complete and options.dense_batch_rows:
            method = replace(method, directions=1)
        usual = _STEPS if options.reward.rule_text is None else options.reward.usual_steps
        manifest = Manifest(
            format=FORMAT,
            name=options.name or "",
            owner=self._signer.author.hex(),
            model=self._model,
            tensors=self.tensors,
            task=task,
            method=method,
            schedule=self._schedule,
            steps=usual if options.steps is None else options.steps,
            staleness=options.staleness,
            admission=options.admission,
            authors_max=AUTHORS_MAX,
        )
        return manifest_builder.build_manifest(manifest, self._settings)

    def signed(self) -> SignedManifest:
        """Sign the manifest. OperatorError names the field at fault."""
        return sign_manifest(self.manifest(), self._signer)
