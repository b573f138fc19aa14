"""Check what a command needs before it computes: the extras of this install (a relay needs none) and the model."""

from importlib.util import find_spec

from protocol.errors import OperatorError
from sfnode.extras import how_to_add
from sfnode.model_files import ModelFolder, resolve_model
from sfnode.reporter import telling


def check_can_serve_page() -> None:
    """Raise OperatorError unless the packages of the extra ``web`` are installed. Imports none; microseconds."""
    if missing := _missing("hypercorn", "starlette"):
        raise OperatorError(
            f"--web needs {missing}, which this install lacks: {how_to_add('web')}. Without --web the node runs as "
            "before"
        )


def check_can_train() -> None:
    """Raise OperatorError unless the packages of the extra ``train`` are installed. Imports none; microseconds."""
    if missing := _missing("torch", "transformers", "safetensors"):
        raise OperatorError(
            f"this needs {missing}, which this install lacks: {how_to_add('train')}. Without it a node can still "
            "store, serve and flood: sfnode join --relay"
        )


def check_can_add_noise() -> None:
    """Raise OperatorError unless the package of the extra ``privacy`` is installed. Imports none; microseconds."""
    if missing := _missing("opendp"):
        raise OperatorError(f"--noise needs {missing}, which this install lacks: {how_to_add('privacy')}")


def _missing(*names: str) -> str:
    return " and ".join(name for name in names if find_spec(name) is None)


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """Return the folder of a model, as `resolve_model` does, and show its progress. Raises OperatorError."""
    with telling() as report:
        return resolve_model(reference, revision or "", report)
