"""Types of option values: a value that is wrong by itself is refused before any work begins."""

import math
import os
import stat
from contextlib import suppress
from pathlib import Path

import click

from protocol.errors import OperatorError
from protocol.run import AdmissionKind
from sfnode.keys import INVITATION_ENDING, KEY_ENDING, check_owner
from sfnode.run import default_directory
from sfnode.storage import DataDirectory, decode_run_file, disk, pasteable

_Typed = str | os.PathLike[str]
_NUMBER_MAX = 2**31 - 1  # for a number whose size does not change the work


class PathFromHome(click.Path):
    """Accepts a path and replaces a leading ``~`` by the user's home, also where no shell has done so.

    A pipe or a device is refused: reading it may never end, and a file must not replace it.
    """

    takes_sockets = False

    def convert(self, value: _Typed, param: click.Parameter | None, ctx: click.Context | None) -> _Typed | bytes:
        path = os.path.expanduser(value)
        if wrong := self.fault(path):
            self.fail(f"{click.format_filename(value)!r} {wrong}", param, ctx)
        return super().convert(path, param, ctx)

    def fault(self, path: str) -> str:
        """Return what is wrong with the path, as the rest of a sentence; empty: nothing."""
        if not path:
            return "is no name"
        if path.startswith("~"):
            return "begins with a user of whom this machine knows no home"
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return ""  # the command makes it, or reports that it is missing
        except (OSError, ValueError) as error:
            return f"cannot be used: {disk.describe_os_error(error)}"
        if not stat.S_ISDIR(mode) and not self.file_okay:
            return "is not a folder"
        if stat.S_ISSOCK(mode) and self.takes_sockets:
            return ""
        return "" if stat.S_ISDIR(mode) or stat.S_ISREG(mode) else "is a pipe or a device: name a file"


class _NewFile(PathFromHome):
    """Accepts the path of a file that a command will make; an existing file is never overwritten."""

    def fault(self, path: str) -> str:
        """Return why no new file can be made here; empty: it can."""
        if wrong := super().fault(path):
            return wrong
        if os.path.isdir(path):
            return ""  # click refuses a folder in its own words
        if os.path.lexists(path):
            return "exists, and is never overwritten: choose another name, or remove it yourself"
        folder = next(each for each in Path(path).absolute().parents if os.path.lexists(each))
        if not folder.is_dir():
            return f"cannot be made, because {folder} is no folder"
        return "" if os.access(folder, os.W_OK | os.X_OK) else f"cannot be made, because you may not write in {folder}"


class _NewRun(_NewFile):
    """Accepts the path of a run that `init` will make; says how to go on where it was ended before its last file."""

    def fault(self, path: str) -> str:
        """Return why no run can be made here; empty: it can."""
        fault, out = super().fault(path), Path(path)
        if not os.path.isfile(path):
            return fault
        key, invitation = out.with_suffix(KEY_ENDING), out.with_suffix(INVITATION_ENDING)
        if not os.path.exists(key) or os.path.exists(invitation):
            return fault
        with suppress(OperatorError):
            manifest = decode_run_file(out).manifest
            check_owner(key, manifest)
            if manifest.admission.kind is AdmissionKind.INVITE:
                invite = pasteable("sfnode run invite --owner-key", key, "--run", out)
                return f"{fault}. It is a run that you own, without {invitation}: `{invite}` makes an invitation"
        return fault


class _DataFolder(PathFromHome):
    """Accepts the path of a data directory, whether it is there or not."""

    def convert(self, value: _Typed, param: click.Parameter | None, ctx: click.Context | None) -> DataDirectory:
        return DataDirectory(Path(os.fsdecode(super().convert(value, param, ctx))))


class _NodeFolder(_DataFolder):
    """Accepts a node of this machine: the path of its data directory, or the beginning of its name in HOME."""

    def convert(self, value: _Typed, param: click.Parameter | None, ctx: click.Context | None) -> DataDirectory:
        text = os.fsdecode(value)
        if not self.fault(os.path.expanduser(text)) and "/" not in text and not os.path.lexists(text):
            try:
                if (found := default_directory.node_called(text)) is not None:
                    return found
            except OperatorError as error:
                self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


class _NodeOrFile(_NodeFolder):
    """Accepts a node as `NodeFolder` does, or the path of a file."""

    def convert(  # type: ignore[override]
        self, value: _Typed, param: click.Parameter | None, ctx: click.Context | None
    ) -> DataDirectory | Path:
        path = Path(os.path.expanduser(value))
        return path if os.path.isfile(path) else super().convert(value, param, ctx)


FilePath = PathFromHome(dir_okay=False, path_type=Path)
NewFilePath = _NewFile(dir_okay=False, path_type=Path)
NewRunPath = _NewRun(dir_okay=False, path_type=Path)
FolderPath = PathFromHome(file_okay=False, path_type=Path)
DataFolder = _DataFolder(file_okay=False)
NodeFolder = _NodeFolder(file_okay=False)
NodeOrFile = _NodeOrFile()
SocketPath = PathFromHome(dir_okay=False, path_type=Path)
SocketPath.takes_sockets = True  # on which another program listens


class FiniteFloat(click.FloatRange):
    """Accepts a number that is neither infinite nor NaN."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


class Whole(click.IntRange):
    """Accepts a whole number from ``min`` to 2^31 - 1: a larger one is a slip."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: int = super().convert(value, param, ctx)
        if number > _NUMBER_MAX:
            self.fail(f"{str(value)[:40]} is too large: it may be {_NUMBER_MAX} at most", param, ctx)
        return number


NOT_NEGATIVE = Whole(0)
