"""Doors: `loading`, `perturbed` and `layer_probe`. A model in memory: loaded, quantised, perturbed, folded."""

from sfnode.training.model import layer_probe, loading, perturbed, quantised, wide_products
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.loading import LogitScale
from sfnode.training.model.offload import check_whole_fits
from sfnode.training.model.perturbed import MatrixTerm, PassContext, Term, VectorTerm
from sfnode.training.model.quantised import Weight
from sfnode.training.model.safe_model_files import check_configs
from sfnode.training.model.tensor_groups import (
    ParameterPlace,
    TensorGroup,
    WeightSwitch,
    attach,
    is_of,
    left_out,
    places,
    trainable_tensors,
)
from sfnode.training.model.weights_digest import check_model, load_described
