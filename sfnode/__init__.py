"""`cli` is the door, `node` the daemon: fine-tune a language model together by flooding signed projected gradients.

Other programs take the names of `__init__.pyi` from here (docs/reference/api.md); what nobody asks for is not imported.
"""

from sfnode.lazy_faces import lazy_face

__version__ = "0.1.0"

__all__ = ["__version__"]

__getattr__, __dir__ = lazy_face(__name__, f"{__file__}i")
