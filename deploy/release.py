"""Makes a release: moves the version, builds wheel and sdist, checks both, writes notes from the changelog.

    python deploy/release.py move 0.2.0      the version in sfnode/__init__.py, and a heading in CHANGELOG.md
    python deploy/release.py build           into build/release, checked; PIP_ARGS has more arguments for pip

A release is checked as a stranger gets it: in a new environment whose path has no compiler. Standard library only; it
publishes nothing (.github/workflows/release.yml does).
"""

import datetime
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
VERSION_FILE = REPOSITORY / "sfnode" / "__init__.py"
CHANGELOG = REPOSITORY / "CHANGELOG.md"
OUT = REPOSITORY / "build" / "release"
UNRELEASED = "## [Unreleased]\n"
VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
NUMBERS = re.compile(r"\d+\.\d+\.\d+")


def main(words: list[str]) -> None:
    """Do what the words ask for."""
    match words:
        case ["move", version]:
            move(version, datetime.datetime.now(tz=datetime.UTC).date().isoformat())
        case ["build"]:
            build(os.environ.get("PIP_ARGS", "").split())
        case _:
            sys.exit(__doc__)


def current_version() -> str:
    """Return the version in sfnode/__init__.py, its only place."""
    found = VERSION.search(VERSION_FILE.read_text("utf-8"))
    assert found is not None
    return found[1]


def move(version: str, day: str) -> None:
    """Write the version, and give what is unreleased its number and day."""
    changelog = CHANGELOG.read_text("utf-8")
    if not NUMBERS.fullmatch(version) or f"## [{version}]" in changelog:
        sys.exit(f"release: {version!r} is not three numbers such as 0.2.0, or CHANGELOG.md has it already")
    VERSION_FILE.write_text(VERSION.sub(f'__version__ = "{version}"', VERSION_FILE.read_text("utf-8")), "utf-8")
    CHANGELOG.write_text(changelog.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day}\n", 1), "utf-8")
    print(f"{version}: commit it, and put the tag v{version} on the commit")  # noqa: T201


def notes_of(changelog: str, version: str) -> str:
    """Return what the changelog says of a version; of what is unreleased, where it does not have the version."""
    sections = dict(re.findall(r"^## \[([^\]]+)\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE))
    return str(sections.get(version) or sections["Unreleased"]).strip() + "\n"


def build(pip_arguments: list[str]) -> None:
    """Build, check, and write the notes beside; the first step that fails ends it with its own message."""
    version = current_version()
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as temporary:
        tools = new_environment(Path(temporary) / "tools")
        run(tools, "pip", "install", "--quiet", *pip_arguments, "build", "twine")
        run(tools, "build", "--outdir", str(OUT), str(REPOSITORY))
        wheel, sdist = next(OUT.glob("*.whl")), next(OUT.glob("*.tar.gz"))
        run(tools, "twine", "check", "--strict", str(wheel), str(sdist))
        again = Path(temporary) / "again"
        run(tools, "pip", "wheel", "--quiet", "--no-deps", *pip_arguments, "--wheel-dir", str(again), str(sdist))
        if names_in(wheel) != names_in(next(again.iterdir())):
            sys.exit(f"release: the wheel made from {sdist} holds other files than {wheel}")
        clean = new_environment(Path(temporary) / "clean")
        run(clean, "pip", "install", "--quiet", *pip_arguments, f"{wheel}[train]")
        run(clean, "sfnode", "testnet", "--nodes", "2", "--steps", "20", "--dir", str(Path(temporary) / "net"))
    (OUT / "notes.md").write_text(notes_of(CHANGELOG.read_text("utf-8"), version), "utf-8")
    (OUT / "constraints.txt").write_text((REPOSITORY / "constraints.txt").read_text("utf-8"), "utf-8")
    print(f"sfnode {version}: {', '.join(sorted(path.name for path in OUT.iterdir()))} in {OUT}")  # noqa: T201


def new_environment(folder: Path) -> Path:
    """Make a virtual environment and return its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(python: Path, module: str, *arguments: str) -> None:
    """Run a module with nothing but this environment's programs on the path: no compiler."""
    print(f"==> {module} {' '.join(arguments[:4])}", flush=True)  # noqa: T201
    environment = {**os.environ, "PATH": str(python.parent)}
    ended = subprocess.run(
        [str(python), "-P", "-m", module, *arguments], env=environment, cwd=python.parent, check=False
    )
    if ended.returncode:
        sys.exit(ended.returncode)


def names_in(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


if __name__ == "__main__":
    main(sys.argv[1:])
