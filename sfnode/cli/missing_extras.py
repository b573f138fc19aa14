"""Check what a command needs before it computes: the extras of this install (a relay needs none) and the model."""

from collections.abc import Sequence
from importlib.util import find_spec

from protocol.errors import OperatorError
from sfnode.extras import how_to_add
from sfnode.model_files import ModelFolder, resolve_model
from sfnode.reporter import telling


def check_can_serve_page() -> None:
    """Raise OperatorError unless the packages of the extra ``web`` are installed. Imports none; microseconds."""
    _check("--web", "web", ("hypercorn", "starlette"), ". Without --web the node runs as before")


def check_can_train() -> None:
    """Raise OperatorError unless the packages of the extra ``train`` are installed. Imports none; microseconds."""
    without = ". Without it a node can still store, serve and flood: sfnode join --relay"
    _check("this", "train", ("torch", "transformers", "safetensors"), without)


def check_can_add_noise() -> None:
    """Raise OperatorError unless the package of the extra ``privacy`` is installed. Imports none; microseconds."""
    _check("--noise", "privacy", ("opendp",))


def _check(what: str, extra: str, packages: Sequence[str], without: str = "") -> None:
    if missing := " and ".join(name for name in packages if find_spec(name) is None):
        raise OperatorError(f"{what} needs {missing}, which this install lacks: {how_to_add(extra)}{without}")


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """Return the folder of a model, as `resolve_model` does, and show its progress. Raises OperatorError."""
    with telling() as report:
        return resolve_model(reference, revision or "", report)
