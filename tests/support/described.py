"""What a manifest says of a model, for tests that do not need the model in memory."""

from __future__ import annotations

from protocol.run.model import ModelSpec
from sfnode.model_files.folder import ModelFolder
from sfnode.training.model.content import load_described


def describe_model(folder: ModelFolder) -> ModelSpec:
    """The manifest's entry for a model, as `sfnode init` writes it. OperatorError."""
    return load_described(folder)[1]
