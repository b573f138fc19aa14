"""The one boundary round loading by transformers: a fault of any file of a model becomes a sentence."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError

from protocol.errors import OperatorError, first_line
from sfnode.model_files import CONFIG_FILE
from sfnode.training.model.change_while_loading import AsRead

_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")
_FETCH = "Mend it, or fetch the model again"
# What transformers says -> what people can act on; the first that is found in it
_SAID = {
    r"Unrecognized configuration class.*?(\w+)Config'": (
        r"\1 is no causal language model, which is one that continues a text: take one that is"
    ),
    r"module 'torch' has no attribute '(.*)'": r"torch has no '\1'; as a dtype write float32, float16 or bfloat16",
    "contains custom code": (
        "transformers has no such kind of model, and the code that comes with a model is never run: take another model"
    ),
}
_LONG = 300  # of a list of all that a field may be, a message has the beginning and the end


@contextmanager
def named_errors(
    doing: str, view: Path, folder: Path, as_read: AsRead | None = None, advice: str = ""
) -> Iterator[None]:
    """Raise OperatorError for errors of libraries within the block; running out of memory keeps its own error.

    ``doing`` begins the sentence, such as "X cannot be loaded", and ``advice`` ends it. ``view``: the folder that the
    library sees in the place of ``folder``.
    """
    try:
        yield
    except Exception as error:  # boundary: the library of tokenizers raises nothing narrower
        cause = (as_read and as_read.fault) or error
        if isinstance(cause, torch.OutOfMemoryError | MemoryError):
            raise cause from None
        if isinstance(cause, OperatorError):
            raise OperatorError(str(cause).replace(str(view), str(folder))) from None
        if isinstance(cause, StrictDataclassError):
            raise OperatorError(f"{folder / CONFIG_FILE}: {_in_words(cause).rstrip('.')}. {_FETCH}") from cause
        reason = _not_json(view, cause) + _in_words(cause)
        raise OperatorError(f"{doing}: {reason.replace(str(view), str(folder))}{advice}") from cause


def _in_words(error: Exception) -> str:
    """Return what a library's error says, of a field of config.json also what is expected of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, StrictDataclassError) and len(lines) > 1:
        said = _CLASS.sub(r"\1", lines[1].partition(": ")[2].partition(". Errors:")[0])  # without the error's class
        return said if len(said) <= _LONG else f"{said[: _LONG // 2]} ... {said[-_LONG // 2 :]}"
    for pattern, words in _SAID.items():
        if found := re.search(pattern, str(error)):
            return found.expand(words)
    if isinstance(error, TypeError | AttributeError):
        return f"one of its values is not one that transformers expects ({first_line(error)})"
    if isinstance(error, ZeroDivisionError):
        return f"{error}: one of its numbers must not be 0"
    if isinstance(error, KeyError):
        (key,) = error.args or ("",)
        return str(key)[:300] if " " in str(key) else f"{key!r} is missing, or a name that transformers does not know"
    return first_line(error)


def _not_json(view: Path, error: Exception) -> str:
    """Return which file of the view is not what it is called, with a colon, where that is the error; else empty."""
    for path in sorted(view.glob("*.json")) if isinstance(error, ValueError) else ():
        try:
            json.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError):
            return f"{path.name} is not a valid JSON file: "
    return ""
