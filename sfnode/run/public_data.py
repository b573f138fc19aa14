"""A run's public data, which the manifest names by their hash: from the disk, or from nodes that give them."""

from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import DATA_PRIVATE, TaskSpec
from sfnode.network import Wanted, bounds
from sfnode.reporter import Reporter
from sfnode.run.manifest_source import fetch_from_nodes
from sfnode.run.run_address import RunAddress
from sfnode.storage import DataDirectory, disk, example_files


def public_data_path(data_dir: DataDirectory, task: TaskSpec) -> Path:
    """Return the file in which a node keeps the public data that it has fetched."""
    return data_dir.path / f"data-{task.data_sha256[:16]}.jsonl"


def is_of_peers(task: TaskSpec, data: str | None) -> bool:
    """Return whether the run's data are public, not part of this package, and not given as a file (``data``)."""
    return data is None and bool(task.data_sha256) and not task.data.startswith(example_files.EMBEDDED)


async def find_public_data(
    task: TaskSpec, address: RunAddress, data_dir: DataDirectory, reporter: Reporter
) -> Path | None:
    """Return the file of the run's public data in ``data_dir``, fetched if needed; None if no node gives them.

    ``address`` is the join string, which says whether the data may be fetched, and their length; no start remembers
    it. OperatorError: a copy is damaged, and cannot be fetched anew.
    """
    path = public_data_path(data_dir, task)
    is_here = path.is_file()
    if is_here and example_files.sha256_of(path) == task.data_sha256:
        return path.resolve()
    if not address.run_data_bytes:
        if is_here:
            raise OperatorError(f"{path}, the run's data, is damaged: join again by the string to join, or give --data")
        return None
    wanted, hint = Wanted.data(task.data_sha256, address.run_data_bytes), "; --data FILE takes a copy"
    data = await fetch_from_nodes(wanted, address.nodes, reporter, "the run's public data", hint)
    disk.write_durably(path, data)
    text = f"the run's data are here: {path}; their licence is their owner's affair, who lets them be given to joiners"
    reporter.event("data_fetched", text, file=str(path), bytes=len(data))
    return path.resolve()


def described_source(address: RunAddress) -> str:
    """Return in words what a join string says about model and data."""
    if address.run_data == DATA_PRIVATE:
        data = "data of your own (--data), which never leave this machine"
    elif address.run_data.startswith(example_files.EMBEDDED):
        data = f"data {address.run_data}, which come with sfnode"
    else:
        data = f"public data {address.run_data}, "
        data += "from its nodes" if address.run_data_bytes else "a copy of which you name with --data"
    return f"model {address.run_model}, {data}"


def shared_data(task: TaskSpec, file: Path | None) -> Path:
    """Return the file that a node may give to others. OperatorError: the run has no public file, or it is too large."""
    if not task.data_sha256 or task.data.startswith(example_files.EMBEDDED):
        what = "private" if task.data == DATA_PRIVATE else "part of sfnode"
        raise OperatorError(f"--share-data does not apply: the run's data are {what}. Leave it out")
    if file is None:
        raise OperatorError(f"--share-data: which file? Add --data FILE, your copy of the run's data {task.data}")
    size = file.stat().st_size
    if size > bounds.DATA_FILE_BYTES_MAX:
        raise OperatorError(
            f"--share-data: {file} has {size:,} bytes, and nodes give at most {bounds.DATA_FILE_BYTES_MAX:,}: "
            "publish the file elsewhere, and leave the option out"
        )
    return file
