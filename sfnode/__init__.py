"""`cli` is the door, `node` the daemon: fine-tune a language model together by flooding signed projected gradients.

Other programs take the names of `_PLACES` from here (docs/reference/api.md); `__init__.pyi` has their types.
"""

from importlib import import_module
from typing import Final

__version__ = "0.1.0"

__all__ = ["__version__"]

# Name -> module. What is not asked for is not imported: torch alone takes seconds.
_PLACES: Final = {
    **dict.fromkeys(("LocalRun", "open_run", "save_run"), "sfnode.api.runs"),
    **dict.fromkeys(("Learner", "LocalAuthor", "Measured"), "sfnode.api.authors"),
    **dict.fromkeys(("Simulation", "VirtualWorld", "simulate"), "sfnode.api.simulation"),
    **dict.fromkeys(("JoinedNode", "NodeEvent", "join"), "sfnode.api.joining"),
    "LocalModel": "sfnode.api.local_model",
    **dict.fromkeys(("JoinOptions", "MethodOptions", "RewardOptions", "TaskOptions"), "sfnode.run"),
    **dict.fromkeys(("Estimated", "Evaluated"), "sfnode.worker_protocol"),
    "Signer": "protocol.crypto",
    **dict.fromkeys(("Ignore", "NumericError", "OperatorError", "Reject", "SfnodeError"), "protocol.errors"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'sfnode' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({"__version__", *_PLACES})
