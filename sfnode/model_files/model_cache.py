"""The cache of models that sfnode has converted or fetched itself: one folder each, which is complete or absent.

A model that comes from peers (`FetchedModel`) lies there alone, or around weights that this machine has. Every node has
exactly the run's bytes of config.json and of the tokenizer's files. If a machine has the run's weights with other small
files, a folder is made that holds the right ones and links to the weights.
"""

import os
import re
import secrets
from hashlib import sha256
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import ModelSpec
from sfnode.model_files.model_folder import INDEX_FILE, is_definition, tokenizer_files
from sfnode.model_files.verify import check_definition
from sfnode.storage import disk

VARIABLE = "SFNODE_MODELS"  # names another folder

_WEIGHTS = ".safetensors"
_CONTENT_DIGITS = 16
_FILES_DIGITS = 8


def cache_folder() -> Path:
    """Return the folder of converted models: ``SFNODE_MODELS``, or a folder in the user's home."""
    return Path(os.environ.get(VARIABLE) or "~/.sfnode/models").expanduser()


def name_of(kind: str, title: str, *identity: str) -> str:
    """Return the name of a model's folder, the same for the same ``identity``; ``title`` makes it readable."""
    digest = sha256("\0".join((kind, *identity)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")[:64]
    return f"{kind}-{readable}-{digest}"


def held(name: str) -> Path | None:
    """Return the folder of this name, which is complete, or None if it is not there."""
    folder = cache_folder() / name
    return folder if folder.is_dir() else None


def put(folder: Path, name: str) -> Path:
    """Move a folder from `conversion.work_folder` to its name in the cache, as one step, and return its path. OSError.

    If two processes made it at the same time, the first one's folder stays: equal input gives equal bytes.
    """
    disk.sync_folder(folder)
    place = cache_folder() / name
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise
    disk.sync_folder(place.parent)
    return place


class FetchedModel:
    """Locates and completes the files of a run's model that peers provide.

    Attributes:
        folder: for the run's own files. Two runs may share their weights but not their tokenizer.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        files = sha256("".join(f"{file.name}\n{file.sha256}\n" for file in spec.files).encode("utf-8")).hexdigest()
        self.folder = cache_folder() / f"{spec.content[:_CONTENT_DIGITS]}-{files[:_FILES_DIGITS]}"

    def is_here(self) -> bool:
        """Return whether all of the run's files are in `folder`."""
        return all((self.folder / file.name).is_file() for file in self._spec.files)

    def check_names(self) -> None:
        """Raise OperatorError unless a model can consist of these files: a stranger's manifest may name anything."""
        weights = {file.name for file in self._spec.weights}
        others = {self._spec.config.name, *(file.name for file in self._spec.tokenizer)}
        unknown = [name for name in sorted(weights) if not name.endswith(_WEIGHTS) and name != INDEX_FILE]
        unknown += sorted(name for name in others if not is_definition(name))
        if unknown:
            raise OperatorError(
                f"the run's model {self._spec.id} has a file {unknown[0]}, which this sfnode does not fetch: it is "
                "none that a model is loaded from. Ask the run's owner, or give a folder with the model: --model FOLDER"
            )

    def fault_of_definition(self, folder: Path) -> str:
        """Return in words why the small files in ``folder`` are not the run's; empty if they are. OperatorError."""
        if not _weights_in(folder):
            return ""  # there are no weights to combine them with: loading the folder reports what is wrong
        try:
            check_definition(folder, self._spec)
        except OperatorError as error:
            return str(error)
        return ""

    def folder_around(self, weights: Path) -> Path:
        """Return the folder for the run's small files with links to the weights in ``weights``, another folder."""
        return Path(f"{self.folder}-{sha256(os.fsencode(weights)).hexdigest()[:_FILES_DIGITS]}")

    def assemble(self, weights: Path) -> None:
        """Link ``weights`` into their `folder_around`, and remove tokenizer files that the run does not have. OSError.

        Those would be loaded with the model.
        """
        folder, named = self.folder_around(weights), {file.name for file in self._spec.tokenizer}
        for name in tokenizer_files(folder):
            if name not in named:
                (folder / name).unlink(missing_ok=True)
        link_weights(weights, folder)


def link_weights(source: Path, folder: Path) -> None:
    """Link the weights of ``source`` into ``folder``, and remove other weights from it. OSError.

    A link that exists already stays: another node of this machine may be loading the model through it.
    """
    wanted = {name: str(source.resolve() / name) for name in _weights_in(source)}
    for name in _weights_in(folder):
        if name not in wanted:
            (folder / name).unlink(missing_ok=True)
    for name, target in wanted.items():
        link = folder / name
        if not (link.is_symlink() and os.readlink(link) == target):
            new = folder / f".{name}.{secrets.token_hex(4)}"
            os.symlink(target, new)
            os.replace(new, link)


def _weights_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(_WEIGHTS) or path.name == INDEX_FILE)
