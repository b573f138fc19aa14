"""From what people call a model to a folder of its files on this disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers.utils.hub import cached_file

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files.folder import CONFIG_FILE, INDEX_FILE, SINGLE_FILE, TOKENIZER_FILES, ModelFolder, shards_of
from sfnode.storage import EMBEDDED

OnProgress = Callable[[str, int, int], None]


def find_model_folder(reference: str, revision: str) -> Path | None:
    """Where the model lies on this disk, ready to be loaded; None when it would be fetched or converted first."""
    if reference.startswith(EMBEDDED):
        return demo.model_folder(reference.removeprefix(EMBEDDED))
    path = Path(reference).expanduser()
    return path if path.is_dir() else None


def resolve_model(reference: str, revision: str = "", on_progress: OnProgress | None = None) -> ModelFolder:
    """The folder of ``reference``: ``embedded:NAME``, a local folder, or a hub id (downloaded when not yet cached).

    Raises:
        OperatorError: there is no such folder or hub model, or it lacks a file.
    """
    if reference.startswith(EMBEDDED):
        return ModelFolder(path=demo.model_folder(reference.removeprefix(EMBEDDED)), id=reference, revision="")
    path = Path(reference).expanduser()
    if path.is_dir():
        return ModelFolder(path=path.resolve(), id=f"local:{path.resolve().name}", revision="")
    if reference.startswith((".", "/", "~")) or path.exists() or reference.count("/") != 1:
        raise OperatorError(
            f"model {reference!r}: no such folder; give a folder with config.json and *.safetensors, "
            "'embedded:NAME', or a Hugging Face id such as facebook/opt-125m"
        )
    return _resolve_hub(reference, revision)


def _resolve_hub(reference: str, revision: str) -> ModelFolder:
    config = _hub_file(reference, CONFIG_FILE, revision)
    if config is None:
        raise OperatorError(
            f"model {reference!r}: no config.json: the hub cannot be reached and nothing is cached, or it is not a "
            "transformers model; check the id and the connection, or give a local folder"
        )
    folder = config.parent
    index = _hub_file(reference, INDEX_FILE, revision)
    wanted = (SINGLE_FILE,) if index is None else shards_of(index)
    for name in (*wanted, *TOKENIZER_FILES):
        _hub_file(reference, name, revision)
    return ModelFolder(path=folder, id=reference, revision=folder.name)  # a cached snapshot's folder is its commit


def _hub_file(reference: str, name: str, revision: str) -> Path | None:
    """A file of a hub repository in the local cache; None when the repository has no such file."""
    try:
        found = cached_file(reference, name, revision=revision or "main", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"model {reference!r}: {name} cannot be fetched from the hub: {str(error).splitlines()[0]}; check the id, "
            "the revision and the connection, or give a local folder"
        ) from None
    return None if found is None else Path(found)
