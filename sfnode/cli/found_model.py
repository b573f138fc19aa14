"""The model that a command was told of, fetched and converted where it must be: what takes long is told on stderr."""

from __future__ import annotations

from sfnode.model_files import ModelFolder, resolve_model
from sfnode.reporter import telling


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """As `resolve_model`. OperatorError."""
    with telling() as tell:
        return resolve_model(reference, revision or "", tell)
