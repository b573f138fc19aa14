"""Check what a command needs before it computes: the extras of this install (a relay needs none) and the model."""

from __future__ import annotations

from importlib.util import find_spec

from protocol.errors import OperatorError
from sfnode.model_files import ModelFolder, resolve_model
from sfnode.reporter import telling

_NEEDED = ("torch", "transformers", "safetensors")


_OF_PAGE = ("hypercorn", "starlette")


def check_can_serve_page() -> None:
    """Raise OperatorError unless the packages of the extra ``web`` are installed. Imports none; microseconds."""
    missing = [name for name in _OF_PAGE if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"--web needs {' and '.join(missing)}, which this install lacks: run `pip install 'sfnode[web]'` or, in a "
            "clone of sfnode, `python deploy/install.py --extras train,web`. Without --web the node runs as before"
        )


def check_can_train() -> None:
    """Raise OperatorError unless the packages of the extra ``train`` are installed. Imports none; microseconds."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"this needs {' and '.join(missing)}, which this install lacks: in a clone of sfnode, run `python "
            "deploy/install.py --extras train`. Without it a node can still store, serve and flood: "
            "sfnode join --relay"
        )


def check_can_add_noise() -> None:
    """Raise OperatorError unless the package of the extra ``privacy`` is installed. Imports none; microseconds."""
    if find_spec("opendp") is None:
        raise OperatorError(
            "--noise needs opendp, which this install lacks: run `pip install 'sfnode[privacy]'` or, in a clone of "
            "sfnode, `python deploy/install.py --extras train,privacy`"
        )


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """Return the folder of a model, as `resolve_model` does, and show its progress. Raises OperatorError."""
    with telling() as tell:
        return resolve_model(reference, revision or "", tell)
