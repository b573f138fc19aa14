"""Finds a run's examples on this machine, and checks that they are the ones the manifest names."""

import hashlib
import os
import re
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import DATA_PRIVATE, TaskSpec
from sfnode import demo
from sfnode.rows import TaskTemplate, hub_dataset, row_files
from sfnode.storage.disk import check_is_content, from_home, opened_file, os_errors

EMBEDDED = "embedded:"
ELSEWHERE = (EMBEDDED, hub_dataset.HUB)  # what names data, and is no path
FILE = "file:"
_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


def data_spec(data: str | None, *, is_private: bool) -> tuple[str, str]:
    """Return (name, SHA-256) for the manifest's task, from an owner's --data."""
    if is_private:
        return DATA_PRIVATE, ""
    if data is None:
        raise OperatorError("--data is missing: give a JSONL file or CSV, embedded:reviews, or --private-data")
    path = locate(data)
    name = data if data.startswith(EMBEDDED) else FILE + path.name
    return name, sha256_of(path)


def training_file(task: TaskSpec, data: str | None) -> Path:
    """Return the path of this node's training data; OperatorError if they are missing or not the run's."""
    if data is None and task.data.startswith(EMBEDDED):
        data = task.data
    if data is None:
        what = f"the run's public data, {task.data.removeprefix(FILE)}, or join by a string of nodes that give them"
        if task.data == DATA_PRIVATE:
            what = "your own JSONL file or CSV; in this run all train on data of their own, which stay where they are"
        raise OperatorError(f"--data is missing: give {what} (a row: {TaskTemplate(task).example})")
    path = locate(data)
    if task.data_sha256 and sha256_of(path) != task.data_sha256:
        raise OperatorError(
            f"{path} is not the run's data {task.data}: its SHA-256 is {sha256_of(path)[:16]}..., the manifest says "
            f"{task.data_sha256[:16]}... Get the file that the owner of the run published"
        )
    return path


def evaluation_file(task: TaskSpec, data: str | None) -> Path | None:
    """Return the path of the held-out examples, or None; those of an embedded task come with the package."""
    if data is None and task.data.startswith(EMBEDDED):
        return demo.data_file(task.data.removeprefix(EMBEDDED), "eval")
    return locate(data, split="eval") if data is not None else None


def locate(data: str, *, split: str = "train") -> Path:
    """Return the file that ``data`` names: a path, ``embedded:NAME`` or ``hub:NAME``. OperatorError: it has none."""
    if data.startswith(EMBEDDED):
        return demo.data_file(data.removeprefix(EMBEDDED), split)
    if data.startswith(hub_dataset.HUB):
        return hub_dataset.fetched(data)
    path = from_home(data)
    if not os.path.isfile(path):  # False, without an error, for too long a name
        raise OperatorError(_why_no_file(data, path))
    check_is_content(path)
    return path.resolve()


def _why_no_file(data: str, path: Path) -> str:
    """Return what stands in a data file's place, and what to do."""
    if os.path.isdir(path):
        names = sorted(each.name for each in path.glob("*") if each.name.endswith(_ENDINGS)) or ["train.jsonl"]
        more = f" ({len(names)} such files: put those to use together into one)" if len(names) > 1 else ""
        return f"{path} is a folder: name a file of rows in it, such as {path / names[0]}{more}"
    if "://" in data:
        return f"{data[:200]!r} is an address: fetch the file and give its path, or a set of the hub as hub:OWNER/NAME"
    if re.match(r"[A-Za-z]:[\\/]", data):
        place = f"/mnt/{data[0].lower()}/" + data[3:203].replace("\\", "/")
        return f"{data[:200]!r} is a path of Windows, which this system does not know: within WSL, try {place}"
    if os.path.exists(path):
        return f"{path} is no file, but a pipe or a device: save its rows in a file"
    if os.path.islink(path):
        return f"{path} is a link that leads to no file: mend it, or name the file itself"
    shown = data if len(data) <= 200 else f"{data[:100]}...{data[-100:]}"
    return f"no data file {shown}: give a JSONL file with the template's fields, or CSV, TSV or Parquet"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file, in hex. OperatorError: it is too long, or cannot be read."""
    with opened_file(path, "the data file") as file, os_errors(f"read the data file {path}"):
        if (size := os.fstat(file.fileno()).st_size) > row_files.BYTES_MAX:
            raise OperatorError(
                f"the data file {path} has {size:,} bytes, and may have {row_files.BYTES_MAX:,} at most"
            )
        return hashlib.file_digest(file, "sha256").hexdigest()
