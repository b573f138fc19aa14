"""Make libp2p importable without a compiler: inside a wheel of sfnode, and without fastecdsa.

setup.py puts libp2p into the wheel, because its own requirements need a compiler. libp2p 0.8.1 imports fastecdsa, which
has no wheel, for secio and P-256 keys. We offer Noise with Ed25519 keys only, so none of its functions is ever called.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).resolve().parent.parent / "bundled"
# The names that libp2p/crypto/ecc.py and key_exchange.py import.
_NAMES = {
    "fastecdsa": (),
    "fastecdsa.curve": ("Curve",),
    "fastecdsa.keys": (),
    "fastecdsa.point": ("Point",),
    "fastecdsa.encoding": (),
    "fastecdsa.encoding.sec1": ("SEC1Encoder",),
    "fastecdsa.encoding.util": ("int_bytelen",),
}


def prefer_bundled() -> bool:
    """Put the bundled libp2p before any other that is installed; return False in a checkout, which has none."""
    if not _FOLDER.is_dir():
        return False
    sys.path.insert(0, str(_FOLDER))  # not at the end: our patches fit this release alone
    return True


class _Absent:
    """Replaces every name of fastecdsa; raises ImportError when used."""

    def __init__(self, *_arguments: object) -> None:
        raise ImportError("P-256 keys need the package fastecdsa, which is not installed; sfnode uses Ed25519 only")


def provide_when_missing() -> None:
    """Install empty fastecdsa modules if the package is missing."""
    if "fastecdsa" in sys.modules or importlib.util.find_spec("fastecdsa") is not None:
        return
    for module_name, names in _NAMES.items():
        module = sys.modules[module_name] = ModuleType(module_name)
        for name in names:
            setattr(module, name, _Absent)
        parent, _, child = module_name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
