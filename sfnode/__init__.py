"""Fine-tune one language model together by flooding signed projected gradients. Doors: `cli` and `node`."""

__version__ = "0.1.0"

__all__ = ["__version__"]
