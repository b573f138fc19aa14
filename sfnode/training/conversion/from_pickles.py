"""From files of `torch.save` to safetensors."""

from __future__ import annotations

from pathlib import Path


def convert_pickles(source: Path, out: Path) -> None:
    """Write the weights in the folder ``source`` into ``out``. OperatorError."""
    raise NotImplementedError
