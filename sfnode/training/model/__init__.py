"""Door: `load_causal_lm`. A model in memory: loaded, probed, quantised, perturbed on its activations, folded."""

from sfnode.training.model.content import check_model, load_described
from sfnode.training.model.folding import fold_weights, newest_epoch
from sfnode.training.model.loading import (
    LogitScale,
    check_positions,
    choose_device,
    choose_dtype,
    load_causal_lm,
    load_tokenizer,
    logit_scale,
    output_embedding,
    positions_of,
    skeleton,
)
from sfnode.training.model.model_view import check_configs
from sfnode.training.model.offload import check_whole_fits
from sfnode.training.model.perturbed import WEIGHT, MatrixTerm, PassContext, Term, VectorTerm, is_norm, with_spare_row
from sfnode.training.model.probe import layers_read_at_last
from sfnode.training.model.quantised import Weight, choose_precision, closed_weights, load_in
from sfnode.training.model.tensors import (
    ParameterPlace,
    TensorGroup,
    WeightSwitch,
    attach,
    left_out,
    places,
    spec_of,
    trainable_tensors,
)

__all__ = [
    "LogitScale",
    "MatrixTerm",
    "ParameterPlace",
    "PassContext",
    "TensorGroup",
    "Term",
    "VectorTerm",
    "WEIGHT",
    "Weight",
    "WeightSwitch",
    "attach",
    "check_configs",
    "check_model",
    "check_positions",
    "check_whole_fits",
    "choose_device",
    "choose_dtype",
    "choose_precision",
    "closed_weights",
    "fold_weights",
    "is_norm",
    "layers_read_at_last",
    "left_out",
    "load_causal_lm",
    "load_described",
    "load_in",
    "load_tokenizer",
    "logit_scale",
    "newest_epoch",
    "output_embedding",
    "places",
    "positions_of",
    "skeleton",
    "spec_of",
    "trainable_tensors",
    "with_spare_row",
]
