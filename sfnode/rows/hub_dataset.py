"""Data sets of the Hugging Face hub by name, through its own library, which the extra `data` brings."""

import hashlib
import json
import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError, first_line
from sfnode.extras import how_to_add

HUB = "hub:"
_FORM = re.compile(r"hub:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?::(?P<part>[\w.-]+))?(?:@(?P<split>[\w.%:\[\]+-]+))?")
_FOLDER = Path("~/.sfnode/data")


def fetched(reference: str) -> Path:
    """Return the rows of ``hub:OWNER/NAME[:CONFIGURATION][@SPLIT]`` as JSON lines; fetch them once. OperatorError."""
    form = _FORM.fullmatch(reference)
    if form is None:
        raise OperatorError(
            f"data {reference!r}: write hub:OWNER/NAME, with :CONFIGURATION and @SPLIT where it has several, such as "
            "hub:nyu-mll/glue:sst2@train"
        )
    title = re.sub(r"[^\w.-]+", "-", reference.removeprefix(HUB))  # equal for [10%:] and [:10%]: the digits are not
    path = _FOLDER.expanduser() / f"{title}-{hashlib.sha256(reference.encode()).hexdigest()[:8]}.jsonl"
    if path.is_file():
        return path
    try:
        library: Any = import_module("datasets")
    except ImportError:
        raise OperatorError(
            f"data {reference!r}: `datasets`, which fetches it, is missing: {how_to_add('data')}; or give a file"
        ) from None
    try:
        rows = library.load_dataset(form["name"], form["part"], split=form["split"] or "train")
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    # TypeError: pictures in JSON; RuntimeError: a data set that a program of its author makes
    except (OSError, ValueError, TypeError, RuntimeError, library.exceptions.DatasetsError) as error:
        raise OperatorError(f"data {reference!r}: cannot be had from the hub: {first_line(error)}") from None
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(lines), "utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise OperatorError(f"cannot write {path}: {first_line(error)}") from None
    return path
