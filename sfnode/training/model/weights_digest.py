"""Identify a model's weights by one digest of their names and values, independent of files and number format."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import torch
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run import ModelSpec, Sharing, weights_digest
from sfnode.model_files import ModelFolder, verify
from sfnode.training.model.change_while_loading import AsRead
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.safe_model_files import check_configs


def load_described(folder: ModelFolder, sharing: Sharing = Sharing.PEERS) -> tuple[PreTrainedModel, ModelSpec]:
    """Return the model in fp32 on the CPU, and the manifest's entry for it. Reads all files, and the weights twice.

    Raises OperatorError as `load_causal_lm` and `describe_files` do.
    """
    model, content = _load_noting(folder.path, lambda values: values)
    return model, verify.describe_files(folder, content, sharing)


def check_model(folder: Path, spec: ModelSpec) -> None:
    """Raise OperatorError unless ``folder`` holds the run's model.

    Its config.json and tokenizer must be those of ``spec``. Its weights must have the same content, in the same files
    or in others.
    """
    verify.check_definition(folder, spec)
    check_configs(folder)
    if verify.has_weight_files(folder, spec):
        return
    found = content_of(folder)
    if found != spec.content:
        raise OperatorError(
            f"the weights in {folder} are not the run's: their content is {found[:16]}..., the run of {spec.id} needs "
            f"{spec.content[:16]}...; use the run's model (revision {spec.revision or 'none'})"
        )


def content_of(folder: Path) -> str:
    """Return the digest of SPEC 1.5 of the model in ``folder``. Reads it tensor by tensor, and keeps none.

    The digest uses the model's own names of its tensors: transformers translates the names of older files.

    OperatorError: as `load_causal_lm`.
    """
    # In place of each tensor comes one of the same shape and dtype, all of whose elements are one zero in memory.
    return _load_noting(folder, lambda values: torch.zeros((), dtype=values.dtype).expand(values.shape))[1]


def _load_noting(folder: Path, kept: Callable[[torch.Tensor], torch.Tensor]) -> tuple[PreTrainedModel, str]:
    """Return the model in fp32 with each tensor replaced by ``kept(tensor)``, and the digest of what was read."""
    digests: dict[str, bytes] = {}
    learnt: set[str] = set()  # parameters; a buffer may hold the -inf of a mask

    def note(name: str, values: torch.Tensor) -> torch.Tensor:
        if name in learnt and not values.isfinite().all():
            raise OperatorError(
                f"{folder}: {name} holds numbers that are infinite or none: its training failed, or the file is "
                "damaged. Fetch the model again, or take another"
            )
        digests[name] = sha256(values.contiguous().numpy().data).digest()
        return kept(values)

    def names(model: PreTrainedModel) -> list[str]:
        learnt.update(name for name, _ in model.named_parameters(remove_duplicate=False))
        return [name for name, tensor in model.state_dict().items() if tensor.is_floating_point()]

    model = load_causal_lm(folder, torch.device("cpu"), torch.float32, AsRead(names, note))
    tensors: dict[int, tuple[str, tuple[int, ...]]] = {}  # by identity: tied tensors count once, under the first name
    found: dict[int, bytes] = {}  # by identity too: the files may hold a tied tensor under any of its names
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_floating_point():
            tensors.setdefault(id(tensor), (name, tuple(tensor.shape)))
            found |= {id(tensor): digests[name]} if name in digests else {}
    return model, weights_digest({name: (shape, found[key]) for key, (name, shape) in tensors.items()})
