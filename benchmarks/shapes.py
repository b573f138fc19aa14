"""The tensors of models of known shapes, without making the models."""

import torch

from protocol.run import TensorKind, TensorSpec
from sfnode.training.bench import synthetic_models


def shape_tensors(shape: str) -> tuple[TensorSpec, ...]:
    """Specs of the linear layers' weights, as `sfnode init` would train them. OperatorError for an unknown shape."""
    return tuple(
        TensorSpec(name=f"{name}.weight", kind=TensorKind.MATRIX, rows=module.out_features, cols=module.in_features)
        for name, module in synthetic_models.meta_model(shape).named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    )
