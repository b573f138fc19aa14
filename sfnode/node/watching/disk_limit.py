"""The limit on what a node keeps: --max-disk."""

from protocol.errors import OperatorError
from sfnode.storage import DataDirectory, disk


def check_disk(data_dir: DataDirectory, bytes_max: int | None) -> None:
    """Refuse to go on when the directory is gone, closed to the node, or larger than --max-disk. OperatorError."""
    advice = ". It was moved, removed or closed while its node ran, which has stopped. If you moved it, start there"
    with disk.os_errors(f"look into the data directory {data_dir}", advice):
        data_dir.lock_file.stat()  # what is open could still be written, and nobody would find it again
    if bytes_max is not None and (taken := disk.bytes_below(data_dir.path)) > bytes_max:
        raise OperatorError(
            f"{data_dir} takes {taken / 1e6:,.1f} MB of {bytes_max / 1e6:,.1f} MB (--max-disk): the node has stopped, "
            "and everything in it is safe. Start it again with a higher --max-disk"
        )
