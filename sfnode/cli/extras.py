"""What a command needs before it computes: the extras of this install, which a relay does without, and the model."""

from __future__ import annotations

from importlib.util import find_spec

from protocol.errors import OperatorError
from sfnode.model_files import ModelFolder, resolve_model
from sfnode.reporter import telling

_NEEDED = ("torch", "transformers", "safetensors")


_OF_PAGE = ("hypercorn", "starlette")


def check_can_serve_page() -> None:
    """OperatorError unless what the extra ``web`` installs is there. Imports nothing; microseconds."""
    missing = [name for name in _OF_PAGE if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"--web needs {' and '.join(missing)}, which this install lacks: run `pip install 'sfnode[web]'` or, in a "
            "clone of sfnode, `python deploy/install.py --extras train,web`. Without --web the node runs as before"
        )


def check_can_train() -> None:
    """OperatorError unless what the extra ``train`` installs is there. Imports nothing; microseconds."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"this needs {' and '.join(missing)}, which this install lacks: in a clone of sfnode, run `python "
            "deploy/install.py --extras train`. Without it a node can still store, serve and flood: "
            "sfnode join --relay"
        )


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """As `resolve_model`. OperatorError."""
    with telling() as tell:
        return resolve_model(reference, revision or "", tell)
