"""Write the trained model as a Hugging Face folder. Each weight is rounded once, as a node of that dtype does it."""

from collections.abc import Mapping
from pathlib import Path

import torch

from protocol.errors import OperatorError
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.model_files import model_folder as files
from sfnode.training.export.atomic_folder import fresh_folder
from sfnode.training.model import ParameterPlace, check_model, check_whole_fits, fold_weights, is_of, loading, places
from sfnode.training.task import PromptEncoder


def export_model(
    bases: Bases,
    coefficients: Coefficients,
    base_folder: Path,
    out_folder: Path,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
) -> None:
    """Write a folder that `AutoModelForCausalLM.from_pretrained` loads: config, safetensors, and what goes with them.

    That are the files of the base model: tokenizer, chat template, settings for generation.

    Weights are the view of `coefficients` on a node with weights in `dtype`. In 16 bits they are rounded up or down in
    proportion, since rounding to the nearest would lose most of a small update. Needs about 4 bytes of memory per
    parameter, or 2.

    OperatorError: the base model is not the run's, or larger than main memory; `out_folder` is not empty (without
    `force`), holds the base model or foreign files, or cannot be written. The folder is then unchanged.
    """
    manifest = bases.manifest
    check_whole_fits(base_folder)
    check_model(base_folder, manifest.model)
    origin = origin_of(manifest, coefficients, base_folder)
    with fresh_folder(out_folder, origin, force=force, read=(base_folder,)) as part:
        model = loading.load_causal_lm(base_folder, torch.device("cpu"), dtype)
        check_tensors(manifest, places(model))
        # The view of the coefficients goes into the model's own parameters, so that tied ones follow.
        parameters = dict(model.named_parameters())
        epochs = {epoch: coefficients.core(epoch) for epoch in coefficients.epochs()}
        with torch.no_grad():
            for name, weight in fold_weights(bases, epochs, parameters).items():
                parameters[name].copy_(weight)
        model.save_pretrained(part)
        (part / files.GENERATION_FILE).unlink(
            missing_ok=True
        )  # made of config.json: the model's own, if it has one, follows
        files.copy_beside(base_folder, part)


def check_tensors(manifest: Manifest, known: Mapping[str, ParameterPlace]) -> None:
    """Raise OperatorError unless the model has all tensors of the run, in their shapes."""
    for tensor in manifest.tensors:
        if tensor.name not in known or not is_of(tensor, known[tensor.name]):
            raise OperatorError(f"tensor {tensor.name}: the model has none of that name and shape that can be trained")


def origin_of(manifest: Manifest, coefficients: Coefficients, base_folder: Path) -> dict[str, object]:
    """Return what an export says about the run and the state that it is made from. OperatorError: no tokenizer."""
    encoder = PromptEncoder(loading.load_tokenizer(base_folder), manifest.task)
    return {
        "run": manifest.name,
        "run_id": manifest.run_id.hex(),
        "state_digest": coefficients.digest().hex(),
        "base_model": manifest.model.id,
        "base_revision": manifest.model.revision,
        "kind": manifest.task.kind.value,
        "template": manifest.task.template,
        "completion": manifest.task.completion,
        "label_words": list(manifest.task.label_words),
        "label_tokens": list(encoder.label_tokens),  # what follows a prompt, if that is one token each
        "max_tokens": manifest.task.max_tokens,
    }
