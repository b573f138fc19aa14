"""The options of a node, kept in its data directory as `node.toml`, for people to read and edit.

Here the fields are names with plain values. The command line knows which fields exist and what they mean.
"""

import json
from collections.abc import Mapping

from protocol.errors import OperatorError
from sfnode.run.manifest_builder import read_toml
from sfnode.storage import DataDirectory, disk

FieldValue = str | int | bool | list[str]

_HEADER = """\
# What this node was told, and what holds at its next start: the options of `sfnode join`.
# `sfnode config` shows and changes them. It writes this file anew: no comments of yours survive that.

"""


def read_node_file(data_dir: DataDirectory) -> dict[str, object] | None:
    """Return the fields as they were written; None without a file. OperatorError: another user's file, or not TOML."""
    path = data_dir.node_file
    if not path.exists():
        return None
    data_dir.check()
    return read_toml(path)


def write_node_file(data_dir: DataDirectory, fields: Mapping[str, FieldValue]) -> None:
    """Replace the file unless it holds these fields already. OperatorError."""
    data_dir.check()
    lines = [f"{name} = {toml_of(value)}\n" for name, value in fields.items()]
    data = (_HEADER + "".join(lines)).encode("utf-8")
    if read_node_file(data_dir) != dict(fields):
        disk.write_durably(data_dir.node_file, data, mode=0o600)


def toml_of(value: FieldValue) -> str:
    """Return a value as TOML. OperatorError for text that no TOML file can hold."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_of, value))}]"
    if not isinstance(value, str):
        return str(value).lower()  # true, false, or digits
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise OperatorError(f"{value!r} cannot be kept in node.toml: it is not UTF-8 text. Rename the file") from None
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
