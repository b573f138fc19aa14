"""Models of the Hugging Face hub, in the cache of the hub's own library."""

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError, first_line
from sfnode.model_files import model_folder as files
from sfnode.model_files.model_folder import ModelFolder
from sfnode.model_files.watched_process import OnProgress, watching
from sfnode.storage import disk

_LIBRARY = "huggingface_hub"
_NEWEST = "main"


def fetch_from_hub(reference: str, revision: str, on_progress: OnProgress) -> ModelFolder:
    """Download what the cache lacks of a model, safetensors or else pickles, and return its folder.

    If the hub does not answer, use what is in the cache. OperatorError: there is no such model, or a file is missing.
    """
    if find_spec(_LIBRARY) is None:
        raise OperatorError(
            f"model {reference!r}: {_LIBRARY} is not installed, which fetches it: in a clone of sfnode, run `python "
            "deploy/install.py --extras train`; or give a local folder"
        )
    hub: Any = importlib.import_module(_LIBRARY)
    errors: Any = importlib.import_module(f"{_LIBRARY}.errors")
    try:
        info = hub.HfApi().model_info(reference, revision=revision or _NEWEST, files_metadata=True)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, ValueError) as error:
        raise OperatorError(
            f"model {reference!r}: the hub has no such model or revision, or lets only some people see it: "
            f"{first_line(error)}"
        ) from None
    except (OSError, errors.HTTPError) as error:
        folder = find_in_cache(reference, revision or _NEWEST)
        if folder is None:
            raise OperatorError(
                f"model {reference!r}: the hub cannot be reached and not all is cached ({first_line(error)}); check "
                "the connection, or give a local folder"
            ) from None
    else:
        sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
        folder = _download(reference, info.sha, sizes, on_progress)
    return ModelFolder(path=folder, id=reference, revision=folder.name)  # a cached snapshot's folder is its commit


def find_in_cache(reference: str, revision: str) -> Path | None:
    """Return the folder where the hub's library keeps all of this revision, or None. OperatorError: an invalid id."""
    if not revision or find_spec(_LIBRARY) is None:
        return None
    hub: Any = importlib.import_module(_LIBRARY)
    try:
        found = hub.try_to_load_from_cache(reference, files.CONFIG_FILE, revision=revision)
    except ValueError as error:
        raise OperatorError(f"model {reference!r}: no such folder, and not an id of the hub: {error}") from None
    return Path(found).parent if isinstance(found, str) and files.has_all_weights(Path(found).parent) else None


def _download(reference: str, commit: str, sizes: Mapping[str, int], on_progress: OnProgress) -> Path:
    """Download a commit, and return its folder. The weights come last: if they are there, all files are."""
    if files.CONFIG_FILE not in sizes:
        raise OperatorError(f"model {reference!r}: it has no config.json: it is not a transformers model")
    hub: Any = importlib.import_module(_LIBRARY)
    errors: Any = importlib.import_module(f"{_LIBRARY}.errors")

    def fetch(name: str) -> Path:
        try:
            return Path(hub.hf_hub_download(reference, name, revision=commit))  # from the cache if it is there
        except (OSError, ValueError, errors.HTTPError) as error:
            raise OperatorError(
                f"model {reference!r}: {name} cannot be fetched from the hub: {first_line(error)}; check the "
                "connection, or give a local folder"
            ) from None

    config = fetch(files.CONFIG_FILE)
    for name in sizes:
        if files.is_definition(name):
            fetch(name)
    wanted: tuple[str, ...] = ()
    for index, single in ((files.INDEX_FILE, files.SINGLE_FILE), (files.PICKLE_INDEX_FILE, files.PICKLE_FILE)):
        if index in sizes or single in sizes:  # of both the single one, as transformers does
            wanted = (single,) if single in sizes else files.shards_of(fetch(index), Path(single).suffix)
            break
    folder, total = config.parent, sum(sizes.get(name, 0) for name in wanted)
    needed = sum(sizes.get(name, 0) for name in wanted if not (folder / name).exists())
    free = disk.free_disk_bytes(folder)
    if free is not None and needed > free:
        raise OperatorError(
            f"model {reference!r}: {needed / 1e6:,.1f} MB of it are to be fetched, and the disk of {folder} has "
            f"{free / 1e6:,.1f} MB free; make room, let HF_HOME name a folder on a larger disk, or give a local folder"
        )
    text = f"fetching {reference} from the hub"
    with watching(folder.parent.parent, lambda done: on_progress(text, done, total)):
        for name in wanted:
            fetch(name)
    return folder
