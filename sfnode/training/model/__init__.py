"""Doors: `loading`, `perturbed` and `layer_probe`. A model in memory: loaded, quantised, perturbed, folded."""

from sfnode.training.model import (
    layer_probe as layer_probe,
    loading as loading,
    perturbed as perturbed,
    quantised as quantised,
    wide_products as wide_products,
)
from sfnode.training.model.folding import fold_weights as fold_weights
from sfnode.training.model.loading import LogitScale as LogitScale
from sfnode.training.model.offload import check_whole_fits as check_whole_fits
from sfnode.training.model.perturbed import (
    MatrixTerm as MatrixTerm,
    PassContext as PassContext,
    Term as Term,
    VectorTerm as VectorTerm,
)
from sfnode.training.model.quantised import Weight as Weight
from sfnode.training.model.safe_model_files import check_configs as check_configs
from sfnode.training.model.tensor_groups import (
    ParameterPlace as ParameterPlace,
    TensorGroup as TensorGroup,
    WeightSwitch as WeightSwitch,
    attach as attach,
    is_of as is_of,
    left_out as left_out,
    places as places,
    trainable_tensors as trainable_tensors,
)
from sfnode.training.model.weights_digest import check_model as check_model, load_described as load_described
