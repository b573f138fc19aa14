"""Chooses the source of the run's model: the hub, a local folder, or this package."""

import os

from protocol.errors import OperatorError
from protocol.run import Manifest, Sharing
from sfnode.model_files import FetchedModel, ModelFolder, is_same_package, resolve_model, verify
from sfnode.reporter import telling
from sfnode.run.node_options import SharingOptions, TrainingOptions
from sfnode.storage import disk, example_files

_LOCAL = "local:"


def may_fetch(manifest: Manifest, options: SharingOptions) -> bool:
    """Return whether neighbours may provide the model's files: neither the run's owner nor this operator forbids it."""
    return manifest.model.sharing is Sharing.PEERS and not options.no_fetch_model


def joiner_model(manifest: Manifest, training: TrainingOptions, sharing: SharingOptions) -> str | None:
    """Return the model's reference as `find_model` does; None if it is to be fetched from neighbours. OperatorError."""
    is_theirs = training.model is None and may_fetch(manifest, sharing) and manifest.model.id.startswith(_LOCAL)
    return None if is_theirs else find_model(manifest, training.model, training.revision)


def find_model(manifest: Manifest, model: str | None, revision: str | None = None) -> str:
    """Return the model's reference for the worker, which checks its content; an obviously wrong name fails here.

    If ``model`` is None, it is the folder that a node has fetched from neighbours, else what the manifest names.
    ``revision`` is the revision that the operator expects of the manifest. OperatorError.
    """
    wanted = manifest.model.id
    if revision is not None and revision != manifest.model.revision:
        raise OperatorError(
            f"--revision {revision} is not the run's: its model {wanted} is of "
            f"{f'revision {manifest.model.revision}' if manifest.model.revision else 'no revision'}. Leave it out"
        )
    if model is None:
        fetched = FetchedModel(manifest.model)
        if fetched.is_here():
            return str(fetched.folder)
        if wanted.startswith(_LOCAL):
            raise OperatorError(
                f"--model is missing: the run's model is a local folder, {wanted.removeprefix(_LOCAL)}. Give the path "
                "of your copy"
            )
        return wanted
    is_copy = os.path.exists(disk.from_home(model))  # False, without an error, for too long a name
    if (
        model != wanted
        and not is_same_package(model, wanted)
        and (not is_copy or wanted.startswith(example_files.EMBEDDED))
    ):
        folder = "" if wanted.startswith(example_files.EMBEDDED) else ", nor a folder or a GGUF file with a copy of it"
        raise OperatorError(f"--model {model} is not the run's model, which is {wanted}{folder}. Use the run's model")
    if is_copy and disk.from_home(model).is_dir():
        verify.check_shapes(disk.from_home(model), manifest.tensors, wanted)
    return model


def found_model(reference: str, revision: str | None) -> ModelFolder:
    """Return the folder of a model, as `resolve_model` does, and show its progress. Raises OperatorError."""
    with telling() as report:
        return resolve_model(reference, revision or "", report)
