"""The small files of a model, config.json and the tokenizer's: every node has exactly the run's bytes of them.

If a machine has the run's weights with other small files, a folder is made that combines the right ones.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import ModelSpec
from sfnode.model_files.folder import CONFIG_FILE, INDEX_FILE, TOKENIZER_FILES, tokenizer_files
from sfnode.model_files.verify import check_definition

_WEIGHTS = ".safetensors"


def lacks_of_definition(folder: Path, spec: ModelSpec) -> str:
    """Return in words why the small files in ``folder`` are not the run's; empty if they are. OperatorError."""
    if not _weights_in(folder):
        return ""  # there are no weights to combine them with: loading the folder reports what is wrong
    try:
        check_definition(folder, spec)
    except OperatorError as error:
        return str(error)
    return ""


def check_names(spec: ModelSpec) -> None:
    """Raise OperatorError unless a model can consist of these files: a stranger's manifest may name anything."""
    weights = {file.name for file in spec.weights}
    others = {spec.config.name, *(file.name for file in spec.tokenizer)}
    unknown = [name for name in sorted(weights) if not name.endswith(_WEIGHTS) and name != INDEX_FILE]
    unknown += sorted(others - {CONFIG_FILE, *TOKENIZER_FILES})
    if unknown:
        raise OperatorError(
            f"the run's model {spec.id} has a file {unknown[0]}, which this sfnode does not fetch: it is none that a "
            "model is loaded from. Ask the run's owner, or give a folder with the model: --model FOLDER"
        )


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


def remove_others(folder: Path, spec: ModelSpec) -> None:
    """Remove tokenizer files that the run's model does not have, because they would be loaded with it. OSError."""
    named = {file.name for file in spec.tokenizer}
    for name in tokenizer_files(folder):
        if name not in named:
            (folder / name).unlink(missing_ok=True)


def _weights_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(_WEIGHTS) or path.name == INDEX_FILE)
