"""`cli` is the door, `node` the daemon: fine-tune a language model together by flooding signed projected gradients."""

__version__ = "0.1.0"

__all__ = ["__version__"]
